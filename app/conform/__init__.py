"""The checker of the chat contract: `examine` sends requests to any engine and reports a finding for each requirement.

It imports nothing of this program, so that it cannot take our reading of the contract for the contract itself.
"""

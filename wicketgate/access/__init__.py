"""Identities, and the rules that decide which tools each may see and call.

``identity`` has the caller, its permissions and the API keys; ``policy`` the access rules and the decision for a tool
or a call; ``seal`` encrypted texts and approvals that clients carry.
"""

"""Identities, and the rules that say what each may see and call.

``identity`` has the caller and the permissions, ``rules`` one access rule and its condition, ``policy`` the decision
for a tool or a call, ``seal`` encrypted texts and approvals that clients carry, ``keys`` the API keys.
"""

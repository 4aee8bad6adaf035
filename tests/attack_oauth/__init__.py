"""Attacks on logins in both directions, each as its attacker would do it: tokens, pages, grants, places and approvers.

The clauses that they try stand at each test; what is mended besides them is tested where the part itself is.
"""

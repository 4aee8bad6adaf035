"""Logins at tool servers: where they are offered, how a client is registered there, and the grants that come of them.

A grant is one actor's own, or the gate's (``shared``). Nothing here knows of HTTP pages or of MCP.
"""

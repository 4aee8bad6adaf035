"""MCP servers as upstreams: one client for both eras, over stdio, streamable HTTP and the older SSE transport.

Read in this order: ``wire`` (messages), ``session`` (what a message is), ``exchange`` (doing it), ``eras`` (agreeing on
a version), ``stdio``, ``http`` and ``sse`` (the transports), ``client`` (one connected server), ``upstream`` (kept
connected).
"""

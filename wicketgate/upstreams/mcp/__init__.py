"""MCP servers as upstreams: one client for both eras, over stdio, streamable HTTP and the older SSE transport.

Public: ``upstream.McpServerUpstream`` with one of ``stdio.stdio_transport``, ``http.http_transport`` and
``sse.sse_transport``. Read in this order: ``wire`` (messages), ``call`` (a request and its failures), ``exchange`` (the
requests in flight), ``eras`` (agreeing on a version), ``stdio``, ``http`` and ``sse`` (the transports), ``client`` (one
connected server), ``upstream`` (kept connected).
"""

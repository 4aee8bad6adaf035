"""HTTP services as upstreams, by their OpenAPI documents.

Public is ``upstream``: ``OpenApiUpstream`` with its ``ServiceAccess``, and the sources of a document. ``document`` says
which base URLs are accepted. Within: operations are read from the document (``operations``, ``inputs``, ``bodies``,
``schemas``), and each call is written as a request (``exchange``, ``parameters``).
"""

"""The HTTP server of ``wicketgate serve``: ``server.serve_app`` runs it, ``protocol`` guards its connections."""

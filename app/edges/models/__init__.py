"""Model providers on the wire."""

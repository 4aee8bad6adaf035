"""The scripted model: a small stand-in for an LLM that says so."""

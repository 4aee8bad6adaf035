"""Wicketgate as a library: many tool servers behind three tools that a model sees."""

"""The part of a long conversation that a model is shown.

``build`` counts chat messages and fits them into a window; ``manager`` makes a prompt of items by phase and by
relevance to a query; ``items`` has those items and reads them from a session file.
"""

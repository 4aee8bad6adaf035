"""The part of a long conversation that a model is shown.

``build`` fits chat messages into a window, with ``shrink`` and ``sizes``; ``manager`` makes a prompt of items
(``items``) by phase and by relevance to a query.
"""

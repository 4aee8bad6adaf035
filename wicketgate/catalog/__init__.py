"""The tools that exist, how they are shown, and how they are found. No I/O.

``catalog`` is the snapshot; ``tool_id``, ``selectable`` and ``card`` name a tool and show it; ``graph`` and
``clusters`` find it by path, ``router`` and ``words`` by query; ``pins`` and ``definition_change`` compare it with what
was accepted.
"""

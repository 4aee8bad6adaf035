"""The tools that exist, how they are shown, and how they are found. No I/O.

``catalog`` is the snapshot; ``tool_id``, ``selectable``, ``card`` and ``order`` say what a tool is called and how it is
shown; ``graph`` and ``clusters`` find it by path, ``router``, ``impact`` and ``words`` by query; ``pins`` and
``definition_change`` compare it with what was accepted; ``tokens`` keeps texts within a budget.
"""

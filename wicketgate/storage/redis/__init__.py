"""State in Redis, for replicas that share it: artifacts, used approvals, learned words, runs with a key,
places, sessions and long calls (EXEC-51, ACCESS-86, CHAT-116, OPS-160).

``url`` and ``names`` decide where things are, ``away`` and ``promises`` what a Redis can be relied on for; ``client``
does the I/O, and each kind of state has a module.
"""

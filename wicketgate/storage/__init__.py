"""What outlives a request: artifacts, seen cards, journals of runs, used approvals, audit records.

Each class implements a Protocol of the room that uses it. Public: ``memory`` and ``sqlite`` (what processes share, a
``Store``), ``artifacts`` (a view of it), ``seen_cards``, ``journal`` (runs), and ``audit_file`` and ``audit_sql``
(audit records, in batches).
"""

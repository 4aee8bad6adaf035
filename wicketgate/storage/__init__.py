"""Stores for what outlives a request: artifacts, seen cards, journals of runs, used approvals, audit records.

Each class implements a Protocol of the room that uses it, in memory or in a file. Public: ``memory_store`` (artifacts
and seen cards), ``sqlite_store`` (artifacts), ``sqlite_file`` (used approvals), ``memory_journal`` (runs), and
``audit_file`` and ``audit_sql`` (audit records, in batches).
"""

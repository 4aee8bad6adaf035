"""Stores for what outlives a request: artifacts, seen cards, journals of runs, used approvals, audit records.

Each class implements a Protocol of the room that uses it, in memory or in a file. Public: ``memory_store``,
``sqlite_store`` (artifacts), ``session_store`` (seen cards), ``memory_journal`` (runs), ``once_store`` (approvals),
``session_file`` (session files of S1), and ``audit_batches`` with its writers ``audit_file`` and ``audit_sql``.
"""

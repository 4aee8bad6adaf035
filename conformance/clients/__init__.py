"""Drivers of real clients: each a process of its own, in the environment of its library, that does what it is told.

A driver reads JSON lines from stdin and answers each with one on stdout: ``{"ok": ...}`` or ``{"error": text, ...}``.
Its commands are those of ``conformance/driver.py``. ``MCP_URL``, ``MCP_KEY`` and ``MCP_ERA`` say where and how to
connect; with ``MCP_COMMAND``, a JSON list, it starts the server instead.
"""

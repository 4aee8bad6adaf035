"""MCP over HTTP: the doors, their sessions, and what needs the SDK (``sdk``), which nothing else here imports."""

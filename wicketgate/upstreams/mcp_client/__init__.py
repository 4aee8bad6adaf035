"""MCP servers as upstreams: child processes and HTTP, sessions, calls beside the SDK, and what may go wrong."""

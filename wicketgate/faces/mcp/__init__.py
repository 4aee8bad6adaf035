"""The faces as MCP servers, in both protocol eras, over HTTP and stdio."""

"""A make-believe shop as an MCP server: the demo's upstream with many tools and some large results."""

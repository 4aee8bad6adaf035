"""The faces as MCP servers, in both protocol eras, over HTTP and stdio.

`McpDoor` turns a face into a server of the official SDK; `serve_stdio` serves one over stdin and stdout.
`McpGatewayServer` and `McpProxyServer` do so for programs that embed a runtime.
"""

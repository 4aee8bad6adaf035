"""FastMCP's proxy as its guide starts it. Runs in an environment of its own.

``python fastmcp_proxy.py URL`` or ``python fastmcp_proxy.py COMMAND ARG...``.
Its server prints where it serves.
"""

import sys
from importlib import import_module
from typing import Any


def main() -> None:
    first, *rest = sys.argv[1:]
    server: dict[str, Any] = {"url": first} if first.startswith("http") else {"command": first, "args": rest}
    proxy = import_module("fastmcp.server").create_proxy({"mcpServers": {"upstream": server}})
    proxy.run(transport="http", host="127.0.0.1", port=0, show_banner=False)


if __name__ == "__main__":
    main()

"""Serves the shop, on loopback or over stdio. Stops at once at a signal, since it has nothing to save."""

import argparse
import os
import socket
import sys
import threading
from types import FrameType

import uvicorn

from examples.shop.server import make_server
from examples.shop.stock import make_shop

HOST = "127.0.0.1"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m examples.shop", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--until-stdin-closes", action="store_true", help="stop when the parent is gone")
    parser.add_argument("--stdio", action="store_true", help="serve over stdin and stdout, not over HTTP")
    options = parser.parse_args()
    if options.stdio:
        make_server(make_shop()).run("stdio")
        return 0
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, options.port))
        except OSError:
            print(f"shop: port {options.port} is taken", file=sys.stderr)
            return 1
        app = make_server(make_shop()).streamable_http_app()
        server = _Server(uvicorn.Config(app, log_level="critical", access_log=False), listener.getsockname()[1])
        if options.until_stdin_closes:
            threading.Thread(target=server.stop_with_stdin, daemon=True).start()
        try:
            server.run(sockets=[listener])
        except KeyboardInterrupt:
            return 0
    return 0


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, port: int) -> None:
        super().__init__(config)
        self._port = port

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        try:
            # Not print: what its buffer keeps after a failure is tried again, and told, when the interpreter ends.
            os.write(1, f"shop listening on http://{HOST}:{self._port}/mcp\n".encode())
        except BrokenPipeError:
            self._stop()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop()
        super().handle_exit(sig, frame)

    def stop_with_stdin(self) -> None:
        # Not sys.stdin: its lock, held by a daemon thread, is a fatal error when the interpreter ends.
        while os.read(0, 4096):
            pass
        self._stop()

    def _stop(self) -> None:
        # Forced: an open MCP stream would otherwise hold the end back for as long as its client likes.
        self.force_exit = self.should_exit = True


if __name__ == "__main__":
    sys.exit(main())

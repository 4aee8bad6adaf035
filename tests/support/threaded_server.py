"""An HTTP server in a thread, for commands that have an event loop of their own."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[str], tuple[int, str, bytes]]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of clients that speak another protocol."""


@contextmanager
def threaded_server(answer: Answer, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """Yields the port on loopback. *answer* gives status, media type and body for a path, whatever the method."""

    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            status, media, body = answer(self.path)
            self.send_response(status)
            self.send_header("content-type", media)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = reply  # noqa: N815  # the names that its base class looks for

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr, which tests read."""

    with _Server(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield str(server.server_address[1])
        finally:
            server.shutdown()
            thread.join()

"""Our transport against servers that people run: uvicorn, nginx and Node."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

import pytest

from tests.support.debian import debian_program
from tests.support.ports import free_port
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.net import HttpClient, NoAnswer, Outgoing, body_of, fetch
from wicketgate.net.outgoing import CannotConnect

BIG = bytes(range(256)) * 4_096

ASGI = """
import asyncio, hashlib
async def app(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    headers = []
    async def say(*pieces, status=200):
        await send({"type": "http.response.start", "status": status, "headers": headers})
        for piece in pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    match scope["path"]:
        case "/sum":
            await say(hashlib.sha256(body).hexdigest().encode())
        case "/stream":
            headers.append((b"content-type", b"text/event-stream"))
            await say(*[b"data: %d\\n\\n" % number for number in range(50)])
        case "/file":
            headers.append((b"content-length", b"1048576"))
            await say(bytes(range(256)) * 4096)
        case "/none":
            await say(status=204)
        case _:
            await say(scope["raw_path"] + b"?" + scope["query_string"], status=404)
"""

NODE = """
const http = require('http'), crypto = require('crypto'), zlib = require('zlib');
http.createServer((request, response) => {
  const pieces = [];
  request.on('data', piece => pieces.push(piece));
  request.on('end', () => {
    const body = Buffer.concat(pieces), path = request.url.split('?')[0];
    if (path === '/sum') response.end(crypto.createHash('sha256').update(body).digest('hex'));
    else if (path === '/stream') {
      response.setHeader('content-type', 'text/event-stream');
      response.writeEarlyHints?.({link: '</a>; rel=preload'});
      for (let number = 0; number < 50; number++) response.write(`data: ${number}\\n\\n`);
      response.end();
    } else if (path === '/file') {
      const file = Buffer.alloc(1048576);
      for (let at = 0; at < file.length; at++) file[at] = at % 256;
      response.setHeader('content-length', file.length);
      response.end(file);
    } else if (path === '/none') { response.statusCode = 204; response.end(); }
    else { response.statusCode = 404; response.end(request.url.includes('?') ? request.url : request.url + '?'); }
  });
}).listen({port: Number(process.argv[2]), host: '127.0.0.1'});
"""

NGINX = """
daemon off; user root; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder}; client_max_body_size 4m;
  server {{
    listen 127.0.0.1:{port};
    location = /none {{ return 204; }}
    location = /file {{ root {folder}; }}
    location = /stream {{ proxy_pass http://127.0.0.1:{behind}; proxy_buffering off; gzip on; }}
    location = /sum {{ proxy_pass http://127.0.0.1:{behind}; }}
    location / {{ proxy_pass http://127.0.0.1:{behind}; }}
  }}
}}
"""


@asynccontextmanager
async def started(command: Sequence[str], port: int, env: Mapping[str, str]) -> AsyncIterator[None]:
    """Run *command* until it is no longer needed; it listens on *port*."""
    process = await asyncio.create_subprocess_exec(
        *command, env=dict(env), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    async def listens() -> bool:
        assert process.returncode is None, f"{command[0]} ended"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(listens)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


@asynccontextmanager
async def uvicorn_server(folder: Path) -> AsyncIterator[str]:
    (folder / "asgi_app.py").write_text(ASGI)
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "asgi_app:app", f"--port={port}", f"--app-dir={folder}"]
    async with started([*command, "--timeout-keep-alive=1", "--log-level=error"], port, os.environ):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def node_server(folder: Path) -> AsyncIterator[str]:
    node = debian_program("node", "nodejs")
    script = folder / "server.js"
    script.write_text(NODE)
    port = free_port()
    async with started([str(node.path), str(script), str(port)], port, node.environment):
        yield f"http://127.0.0.1:{port}"


@asynccontextmanager
async def nginx_server(folder: Path) -> AsyncIterator[str]:
    """nginx before uvicorn."""
    nginx = debian_program("nginx", "nginx")
    (folder / "file").write_bytes(BIG)
    async with uvicorn_server(folder) as behind:
        port = free_port()
        configuration = folder / "nginx.conf"
        configuration.write_text(NGINX.format(folder=folder, port=port, behind=behind.rpartition(":")[2]))
        command = [str(nginx.path), "-c", str(configuration), "-p", str(folder), "-e", str(folder / "error.log")]
        async with started(command, port, nginx.environment):
            yield f"http://127.0.0.1:{port}"


SERVERS = {"uvicorn": uvicorn_server, "node": node_server, "nginx": nginx_server}


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    async with SERVERS[request.param](tmp_path) as url:
        yield url


async def test_a_real_server_is_understood(server: str) -> None:
    async with asyncio.timeout(30), HttpClient(Outgoing()) as http:
        for _ in range(2):  # over the kept connection too
            # Bodies in both directions.
            reply = await fetch(http, "POST", f"{server}/sum", {}, BIG, max_bytes=1000)
            assert reply.body.decode() == sha256(BIG).hexdigest()
            assert (await fetch(http, "GET", f"{server}/file", {}, max_bytes=len(BIG))).body == BIG

            # A stream of events, a status without a body, HEAD, and a path byte for byte.
            response = await http.send(http.build_request("POST", f"{server}/stream", content=b"{}"), stream=True)
            body, text = body_of(response), b""
            while data := await body.read():
                text += data
            await response.aclose()
            assert text == b"".join(b"data: %d\n\n" % number for number in range(50))
            assert (await http.delete(f"{server}/none")).status_code == 204
            head = await http.head(f"{server}/file")
            assert (head.headers["content-length"], head.content) == (str(len(BIG)), b"")
            reply = await fetch(http, "GET", f"{server}/x/%2E%2E/y%2Fz?a=%2C", {}, max_bytes=1000)
            assert (reply.status, reply.body) == (404, b"/x/%2E%2E/y%2Fz?a=%2C")

        # A body cut short, and then the next request.
        reply = await fetch(http, "GET", f"{server}/file", {}, max_bytes=1000)
        assert (reply.body, reply.cut) == (BIG[:1000], True)
        assert (await fetch(http, "GET", f"{server}/none", {}, max_bytes=1)).status == 204

        # Many at the same time.
        async with asyncio.TaskGroup() as group:
            many = [group.create_task(http.post(f"{server}/sum", content=BIG[:1000])) for _ in range(64)]
        assert {task.result().text for task in many} == {sha256(BIG[:1000]).hexdigest()}


async def test_a_server_that_was_stopped_is_told_apart_from_one_that_took_a_request(tmp_path: Path) -> None:
    async with asyncio.timeout(30), HttpClient(Outgoing()) as http:
        async with node_server(tmp_path) as url:
            assert (await http.get(f"{url}/none")).status_code == 204
        with pytest.raises(CannotConnect):
            await http.get(f"{url}/none")


async def test_a_request_that_nginx_finds_too_large_is_answered(tmp_path: Path) -> None:
    async with asyncio.timeout(30), nginx_server(tmp_path) as url, HttpClient(Outgoing()) as http:
        assert (await http.post(f"{url}/sum", content=bytes(8 << 20))).status_code == 413
        assert (await http.post(f"{url}/sum", content=b"")).status_code == 200


@requirement("UP-42")
async def test_a_kept_connection_that_uvicorn_closes_after_a_second_is_replaced(tmp_path: Path) -> None:
    async with asyncio.timeout(30), uvicorn_server(tmp_path) as url, HttpClient(Outgoing(), idle_s=60) as http:
        for pause_s in (0.98, 1.02):
            assert (await http.get(f"{url}/none")).status_code == 204
            await asyncio.sleep(pause_s)  # about as long as uvicorn keeps a connection
            with suppress(NoAnswer):  # met in the same moment: written, so never repeated
                assert (await http.get(f"{url}/none")).status_code == 204

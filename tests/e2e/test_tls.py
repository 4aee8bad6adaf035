"""TLS at the port of ``wicketgate serve`` (OPS-571)."""

import asyncio
import re
import shutil
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.certificates import Authority
from tests.support.process import Program, program
from tests.support.requirement import requirement
from tests.support.served import ECHO, HEADERS, write_config
from tests.support.service import BOUND_S, chat_body
from tests.support.until import until

READY = r"ready on (https://127\.0\.0\.1:\d+)"


def authority(folder: Path, name: str) -> Authority:
    (folder / name).mkdir()
    return Authority(folder / name)


def issue(authority: Authority, name: str = "127.0.0.1") -> Path:
    """The file with a new key and its certificate."""
    authority.serving(name)
    return authority.ca_file.parent / f"server-{name}-False.pem"


def client(authority: Authority, own: Path | None = None, url: str = "") -> httpx.AsyncClient:
    context = ssl.create_default_context(cafile=authority.ca_file)
    if own is not None:
        context.load_cert_chain(own)
    return httpx.AsyncClient(base_url=url, verify=context, headers=HEADERS, timeout=BOUND_S, trust_env=False)


def serve(folder: Path, **tls: Any) -> Any:
    config = write_config(folder, upstreams=[ECHO], server={"tls": {name: str(file) for name, file in tls.items()}})
    return program("app", "serve", "--config", str(config), "--port", "0")


@requirement("OPS-571")
async def test_calls_and_chats_over_tls_with_certificates_that_are_renewed(tmp_path: Path) -> None:
    first, second = authority(tmp_path, "first"), authority(tmp_path, "second")
    file = tmp_path / "tls.pem"
    shutil.copy(issue(first), file)
    async with serve(tmp_path, cert=file, key=file) as running:
        url = (await running.wait_for(READY))[1]
        async with client(first, url=url) as http:
            body = {"operation": "/echo/echo", "input": {"text": "a"}}
            assert (await http.post("/operations/call", json=body)).status_code == 200
            assert "event: done" in (await http.post("/engine/chat", json=chat_body())).text
            # A body that is too long is answered before it is read.
            assert (await http.post("/operations/call", content=b"x" * 11_000_000)).status_code == 413
        with pytest.raises(httpx.ConnectError):
            async with client(second, url=url) as http:
                await http.get("/healthz")
        # A stranger that speaks plain HTTP, or nothing, holds nobody.
        with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as silent:
            silent.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            async with client(first, url=url) as http:
                assert (await http.get("/healthz")).status_code == 200
        # Damaged files change nothing; new ones hold for new connections.
        file.write_text("no certificate")
        await until(lambda: kept(running, first, url), bound_s=BOUND_S)
        shutil.copy(issue(second), file)
        await until(lambda: seen(second, url), bound_s=BOUND_S)


async def kept(running: Program, authority: Authority, url: str) -> bool:
    """True when the log says so, and the certificate of before is in use."""
    return await seen(authority, url) and "of before stay in use" in running.stdout


async def seen(authority: Authority, url: str) -> bool:
    try:
        async with client(authority, url=url) as http:
            return (await http.get("/healthz")).status_code == 200
    except httpx.ConnectError:
        await asyncio.sleep(0.1)
        return False


@requirement("OPS-571")
async def test_with_client_ca_each_client_needs_a_certificate(tmp_path: Path) -> None:
    own, clients, others = (authority(tmp_path, name) for name in ("own", "clients", "others"))
    file = issue(own)
    async with serve(tmp_path, cert=file, key=file, client_ca=clients.ca_file) as running:
        url = (await running.wait_for(READY))[1]
        async with client(own, issue(clients, "a"), url) as http:
            assert (await http.get("/healthz")).status_code == 200
        for certificate in (None, issue(others, "a")):
            with pytest.raises(httpx.TransportError):
                async with client(own, certificate, url) as http:
                    await http.get("/healthz")


@requirement("OPS-571")
@pytest.mark.parametrize("broken", ["cert", "key", "client_ca"])
async def test_files_that_cannot_be_used_stop_the_start(tmp_path: Path, broken: str) -> None:
    file = issue(authority(tmp_path, "own"))
    files = {"cert": file, "key": file, "client_ca": file, broken: tmp_path / "none.pem"}
    async with serve(tmp_path, **files) as running:
        code = await running.ended(bound_s=BOUND_S)
    assert code == 1
    assert re.search(r"server\.tls", running.stderr)

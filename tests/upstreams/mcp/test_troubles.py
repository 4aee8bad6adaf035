"""MCP servers that cannot be used: callers are told a fixed phrase, the operator what was tried and what mends it."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path

import pytest

from tests.support.http_service import HttpService, Reply
from tests.support.requirement import requirement
from tests.support.supervised import BOUND_S, UNRULY, context
from tests.support.until import until
from wicketgate.errors import UpstreamUnavailable
from wicketgate.net import Outgoing
from wicketgate.ports import UpstreamStatus
from wicketgate.upstreams.mcp.client import Connect
from wicketgate.upstreams.mcp.http import http_transport
from wicketgate.upstreams.mcp.sse import sse_transport
from wicketgate.upstreams.mcp.stdio import LastWords, stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

HTML = {"content-type": "text/html; charset=utf-8"}
PAGE = b"<!doctype html><title>secret</title>"
PLAIN_TO_TLS = b"Client sent an HTTP request to an HTTPS server.\n"
HTTP_PATH = "correct the path in url, often /mcp; or transport: sse, if it is a server of the older HTTP+SSE transport"
SSE_PATH = "correct the path in url, often /sse; or leave out transport: sse, if it speaks streamable HTTP"


async def first_failure(connect: Connect, tried: str) -> UpstreamStatus:
    """The status of an upstream once it is down; callers are refused with its error and no more."""
    upstream = McpServerUpstream("shop", connect, connect_timeout_s=15, jitter=lambda: 0, tried=tried)
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        supervising = tasks.create_task(upstream.supervise(lambda _: None))
        await until(lambda: upstream.status.phase == "down")
        status = upstream.status
        with pytest.raises(UpstreamUnavailable) as refused:
            await upstream.call_tool("x", {}, context(), 5)
        assert refused.value.message == f"shop is not connected ({status.error})."
        supervising.cancel()
    return status


@requirement("UP-68")
@pytest.mark.parametrize(
    ("transport", "headers", "answer", "why", "mend"),
    [
        ("http", {}, Reply(PAGE, 200, HTML), "it answers with a web page, not with MCP", HTTP_PATH),
        ("sse", {}, Reply(PAGE, 200, HTML), "it answers with a web page, not with MCP", SSE_PATH),
        (
            "http",
            {},
            Reply(b'{"a": 1}'),
            "it returned an answer that is not a valid MCP result",
            f"is it an MCP server? {HTTP_PATH}",
        ),
        (
            "http",
            {},
            Reply(PAGE, 401, HTML),
            "it wants a credential (HTTP status 401)",
            "give it one in headers (Authorization) or by oauth",
        ),
        (
            "sse",
            {"Authorization": "Bearer stale-1"},
            Reply(status=403),
            "it refused the gateway's credentials (HTTP status 403)",
            "correct the credential in headers or oauth; has it expired, or too few rights?",
        ),
        ("http", {}, Reply(PAGE, 404, HTML), "it has no MCP endpoint at this path (HTTP status 404)", HTTP_PATH),
        ("http", {}, Reply(status=405), "it has no MCP endpoint at this path (HTTP status 405)", HTTP_PATH),
        ("http", {}, Reply(PAGE, 501, HTML), "it has no MCP endpoint at this path (HTTP status 501)", HTTP_PATH),
        ("sse", {}, Reply(status=405), "it has no MCP endpoint at this path (HTTP status 405)", SSE_PATH),
        (
            "http",
            {},
            Reply(PLAIN_TO_TLS, 400, {"content-type": "text/plain"}),
            "it speaks https, not http",
            "write https:// in url",
        ),
        (
            "http",
            {},
            Reply(PAGE, 502, HTML),
            "it gave no MCP answer (HTTP status 502)",
            "look at the log of that server",
        ),
    ],
)
async def test_what_is_no_mcp_over_http_is_told_with_its_mend(
    transport: str, headers: dict[str, str], answer: Reply, why: str, mend: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with HttpService(lambda _: answer) as service:
        way = sse_transport if transport == "sse" else http_transport
        url = f"{service.url}/private?key=hidden"
        status = await first_failure(partial(way, "shop", url, headers, outgoing=Outgoing()), service.url)
    assert status.error == why
    assert status.report == f"{why} ({service.url}): {mend}"
    assert f"shop: {status.report}" in caplog.messages
    for hidden in ("private", "hidden", "secret", "stale-1"):
        assert hidden not in caplog.text


@requirement("UP-68")
async def test_a_server_that_hangs_up_is_told_with_its_mend() -> None:
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        status = await first_failure(partial(http_transport, "shop", f"{url}/mcp", {}, outgoing=Outgoing()), url)
    why = "it closed the connection without an answer"
    assert (status.error, status.report) == (why, f"{why} ({url}): if it speaks https, write https:// in url")


@requirement("UP-68")
async def test_a_server_that_refuses_the_handshake_is_quoted_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    words = {"jsonrpc": "2.0", "id": None, "error": {"code": -32001, "message": "Missing API key\nX"}}
    async with HttpService(lambda _: Reply(json.dumps(words).encode(), 400)) as service:
        connect = partial(http_transport, "shop", f"{service.url}/mcp", {}, outgoing=Outgoing())
        status = await first_failure(connect, service.url)
    why = "it refused the MCP handshake (HTTP status 400)"
    assert (status.error, status.report) == (why, why)
    assert caplog.messages == [
        "shop: it answered the handshake with error -32001: Missing API key X",
        f"shop: {why}",
    ]


def script(folder: Path, text: str, mode: int) -> str:
    file = folder / "server"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


NO_FILE = "there is no such file; correct command"
CHMOD = "make it executable (chmod +x), or name its interpreter first in command"


@requirement("UP-69")
@pytest.mark.parametrize(
    ("command", "env", "why", "mend"),
    [
        (
            "no-such-npx",
            {},
            "the command was not found",
            "it is not on the PATH of the gate; install it, or write its full path",
        ),
        (
            "no-such-npx",
            {"PATH": "/nowhere"},
            "the command was not found",
            "it is not on the PATH in its env; install it, or write its full path",
        ),
        ("/no/such/bin", {}, "the command was not found", NO_FILE),
        (("x = 1\n", 0o644), {}, "the command may not be run", CHMOD),
        ("/", {}, "the command may not be run", "it is a folder, or name its interpreter first in command"),
        (
            ("#!/no/such/node\n", 0o755),
            {},
            "the command cannot be run",
            "the program that its first line names (#!) does not exist",
        ),
        (
            ("x = 1\n", 0o755),
            {},
            "the command cannot be run",
            "it is no program of this machine, nor a script with a #! line; name its interpreter first in command",
        ),
    ],
)
async def test_a_command_that_cannot_be_started_is_told_with_its_mend(
    tmp_path: Path, command: str | tuple[str, int], env: dict[str, str], why: str, mend: str
) -> None:
    program = command if isinstance(command, str) else script(tmp_path, *command)
    status = await first_failure(partial(stdio_transport, "shop", [program], env, None), program)
    assert status.error == why
    assert status.report == f"{why} ({program}): {mend}"


@requirement("UP-69")
async def test_a_working_directory_that_is_not_there_is_named_to_the_operator_alone() -> None:
    status = await first_failure(partial(stdio_transport, "shop", UNRULY, {}, "/no/such/folder"), "python")
    assert status.error == "its working directory was not found"
    assert status.report == "its working directory was not found (python): correct cwd, /no/such/folder"


@requirement("UP-70")
async def test_a_crash_that_repeats_is_logged_with_its_words_once(caplog: pytest.LogCaptureFixture) -> None:
    crash = "import os, sys; print(f'no module (process {os.getpid()})', file=sys.stderr); sys.exit(3)"
    ends: list[str] = []
    connect = partial(stdio_transport, "shop", [sys.executable, "-c", crash], {}, None, last_words=LastWords("shop"))
    upstream = McpServerUpstream(
        "shop", connect, connect_timeout_s=15, jitter=lambda: 0, note=lambda kind, why: ends.append(kind)
    )
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        supervising = tasks.create_task(upstream.supervise(lambda _: None))
        await until(lambda: len(ends) >= 3)
        supervising.cancel()
    assert upstream.status.error == "it ended with code 3 before it was ready"
    assert sum("wrote before it ended: no module" in message for message in caplog.messages) == 1
    assert sum("it ended with code 3" in message for message in caplog.messages) == 1


@requirement("UP-70")
def test_last_words_are_logged_unless_they_are_those_of_the_end_before(caplog: pytest.LogCaptureFixture) -> None:
    words = LastWords("shop")

    def said(text: str) -> list[str]:
        caplog.clear()
        words.feed(text.encode())
        words.ended()
        return [message.removeprefix("shop wrote before it ended: ") for message in caplog.messages]

    assert said("no module\nat 0x7f01, line 1") == ["no module", "at 0x7f01, line 1"]
    assert [said("no module\nat 0x7f02, line 9\n") for _ in range(4)] == [[]] * 4
    assert said("out of memory") == ["out of memory"]
    assert said("") == []
    assert said("out of memory") == ["out of memory"]


@requirement("UP-71")
async def test_a_server_that_ends_at_the_question_for_the_newer_era_is_not_down_meanwhile() -> None:
    connect = partial(stdio_transport, "shop", [*UNRULY, "--strict"], {}, None)
    upstream = McpServerUpstream("shop", connect, connect_timeout_s=15, jitter=lambda: 0)
    phases = {upstream.status.phase}
    async with asyncio.timeout(BOUND_S), asyncio.TaskGroup() as tasks:
        supervising = tasks.create_task(upstream.supervise(lambda _: None))
        while upstream.status.phase != "ready":
            phases.add(upstream.status.phase)
            await asyncio.sleep(0)
        supervising.cancel()
    assert phases == {"connecting"}

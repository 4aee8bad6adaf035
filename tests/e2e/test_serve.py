"""The real process with real MCP servers and a real model server on the wire (CHAT-61, CHAT-72, ACCESS-5, OPS-13,
OPS-14)."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.model_server import HOLD, ModelServer, Reply, chunk, text_turn, tool_turn
from tests.support.ports import free_port
from tests.support.process import ROOT, alive, children, command, program
from tests.support.requirement import requirement
from tests.support.served import ECHO, HEADERS, address, serving, write_config
from tests.support.service import KEY, chat_body, frames
from tests.support.until import until


def echo_id() -> str:
    from tests.support.echo_server import TOOLS
    from wicketgate.catalog.tool_id import derive_tool_id

    return derive_tool_id("echo", TOOLS[0]["inputSchema"], None, "echo")


@requirement("CHAT-30", "CHAT-61", "OPS-13", "OPS-14")
async def test_one_correlation_id_is_seen_everywhere_and_the_logs_hold_no_content(tmp_path: Path) -> None:
    call = tool_turn(("c1", "tool_execute", {"tool_id": echo_id(), "args": {"text": "very private words"}}))
    async with ModelServer(call, text_turn("All ", "good.", usage=(3, 4))) as model:
        config = write_config(
            tmp_path,
            model={
                "provider": "openai-chat",
                "base_url": model.base_url,
                "model": "some-model",
                "api_key": "sk-very-secret-key",
            },
        )
        async with serving(config) as (running, http):
            answer = await http.post("/engine/chat", json=chat_body("a private question", correlation_id="trace-42"))
            assert await running.stop() == 0
    stream = frames(answer.text)
    assert [event for event, _ in stream] == ["tool-call", "tool-result", "text-delta", "text-delta", "done"]
    usage = stream[-1][1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (13, 9)
    facts = json.loads(stream[1][1]["output"])
    assert "trace-42" in json.dumps(facts), "the id must have reached the tool in _meta"
    assert answer.headers["x-correlation-id"] == "trace-42"
    assert [request.headers["x-correlation-id"] for request in model.requests] == ["trace-42", "trace-42"]
    assert model.requests[0].headers["authorization"] == "Bearer sk-very-secret-key"
    assert KEY not in json.dumps([request.headers for request in model.requests])

    logs = running.logs()
    assert logs
    for line in logs:
        assert list(line)[:5] == ["timestamp", "correlation_id", "component", "level", "message"]
    of_the_request = [line for line in logs if line["correlation_id"] == "trace-42"]
    assert any(line["message"].startswith("POST /engine/chat") for line in of_the_request)
    for secret in ("very private words", "a private question", "All good", "sk-very-secret-key", KEY):
        assert secret not in running.stdout + running.stderr


@requirement("ACCESS-5", "OPS-16")
async def test_without_keys_it_listens_on_loopback_and_prints_a_key_and_a_line_that_works() -> None:
    async with program("app", "serve", "--port", "0") as running:
        await running.wait_for("curl -N .*\n.*\n")
        curl = re.search(r"curl -N .*\\\n.*", running.stderr)
        assert curl is not None
        shell = await asyncio.create_subprocess_shell(
            f"{curl.group()} --silent --show-error", stdout=asyncio.subprocess.PIPE
        )
        out, _ = await shell.communicate()
        assert await running.stop(signal.SIGINT) == 0
    assert [event for event, _ in frames(out.decode())][-1] == "done"
    assert "127.0.0.1" in curl.group()
    assert "wg_local_" not in running.stdout


async def test_a_port_that_is_bound_but_does_not_listen_yet_is_taken_too() -> None:
    async with program("app", "serve", "--port", "0") as first:
        port = (await address(first)).rsplit(":", 1)[1]
        async with program("app", "serve", "--port", port) as second:
            assert await second.ended() == 1
        assert await first.stop() == 0
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        async with program("app", "serve", "--port", str(bound.getsockname()[1])) as winner:
            await address(winner)  # no server listens there, so it may
            async with program("app", "serve", "--port", str(bound.getsockname()[1])) as loser:
                assert await loser.ended() == 1
            assert "Cannot listen" in loser.stderr
            await winner.stop()


@requirement("OPS-13")
async def test_without_a_reader_of_its_log_it_serves_on_and_stops_at_the_signal(tmp_path: Path) -> None:
    config = write_config(tmp_path, upstreams=[], server={"drain_s": 0})
    command = [sys.executable, "-m", "app", "serve", "--config", str(config), "--port", "0"]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "pipesize": 4_096}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as process:
        try:
            assert process.stderr is not None
            url = None
            while url is None:
                url = re.search(r"http://127\.0\.0\.1:\d+", await asyncio.to_thread(process.stderr.readline))
            async with httpx.AsyncClient(base_url=url.group(), trust_env=False) as http:
                for _ in range(100):  # some 20 KB of log lines: more than the pipe takes
                    assert (await http.get("/healthz")).status_code == 200
            process.terminate()
            assert await asyncio.to_thread(process.wait, 10) == 0
        finally:
            process.kill()


@requirement("UP-3")
async def test_a_server_that_dies_is_started_again_and_none_is_left_behind(tmp_path: Path) -> None:
    config = write_config(tmp_path, model={"provider": "scripted"})
    async with serving(config) as (running, http):
        (first,) = children(running.process.pid)
        os.kill(first, signal.SIGKILL)

        async def state() -> str:
            found: str = (await http.get("/readyz")).json()["upstreams"]["echo"]["state"]
            return found if children(running.process.pid) not in ([], [first]) else "not started again"

        await until(state, lambda found: found == "ready")
        (second,) = children(running.process.pid)
        assert await running.stop(signal.SIGINT) == 0
    assert not alive(first)
    assert not alive(second)


@requirement("UP-1")
async def test_an_upstream_over_http_is_configured_by_its_url(tmp_path: Path) -> None:
    async with program("examples.shop", "--port", "0") as shop:
        url = (await shop.wait_for(r"listening on (\S+)", "stdout")).group(1)
        config = write_config(tmp_path, upstreams=[{"name": "shop", "url": url, "headers": {"X-Any": "thing"}}])
        async with program("app", "check", "--all", "--config", str(config)) as running:
            assert await running.ended(40) == 0
    assert "shop: ready" in running.stderr
    assert running.stdout.count("  shop:") > 50


@requirement("CARD-36", "CARD-37", "CARD-38")
async def test_check_counts_what_is_usable_and_what_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.support.odd_server"]
    names = ("odd", "q0x9z1" * 9)
    config = write_config(tmp_path, upstreams=[{"name": name, "command": command} for name in names])
    async with program("app", "check", "--config", str(config)) as running:
        assert await running.ended(40) == 1
    lines = running.stdout.splitlines()
    assert lines[-1] == "2 of 2 upstreams connected, 8 tools, 12 left out, 1 not browsed, 2 left aside"
    assert sum(line.startswith("left out: ") for line in lines) == 12
    assert any(line.startswith("left out: odd[9]: 'first' has the id odd:first#") for line in lines)
    (not_browsed,) = (line for line in lines if line.startswith("not browsed: "))
    assert not_browsed.startswith(f"not browsed: {names[1]}:Q0z_x")
    assert "hard cap" in not_browsed
    assert sum(line.startswith("  ") and ":" in line for line in lines) == 8
    # Two upstreams that give one id: the tools of one of them are not in use, and this is told.
    both = [{"name": name, "command": command, "namespace": "infer"} for name in ("a", "b")]
    async with program("app", "check", "--config", str(write_config(tmp_path, upstreams=both))) as running:
        assert await running.ended(40) == 1
    counted, refused = running.stdout.splitlines()[-2:]
    assert counted == "2 of 2 upstreams connected, 4 tools, 6 left out, 1 left aside"
    assert refused in ("not in use: the tools that a lists now", "not in use: the tools that b lists now")


@requirement("UP-20", "UP-34")
async def test_functions_of_a_package_serve_and_a_disabled_upstream_is_as_none(tmp_path: Path) -> None:
    local = {"name": "local", "python": "mine:registry", "cwd": str(tmp_path)}
    (tmp_path / "mine.py").write_text(
        "from wicketgate.tools import ToolRegistry as R\nregistry = R()\n@registry.tool\ndef one() -> int: return 1\n"
    )
    off = {**ECHO, "enabled": False}
    config = write_config(tmp_path, upstreams=[local, off, {"name": "gone", "python": "no.such:r"}])
    async with program("app", "check", "--config", str(config)) as running:
        assert await running.ended(40) == 1
    assert "local: ready" in running.stderr
    assert "  local:one#" in running.stdout
    assert "echo: disabled" in running.stdout
    assert "echo:echo" not in running.stdout
    assert "gone: down (the module no.such cannot be imported (ModuleNotFoundError))" in running.stdout
    assert "1 of 2 upstreams connected, 1 tools" in running.stdout


@requirement("OPS-5")
async def test_check_shows_what_there_is_and_fails_when_something_is_missing(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    async with program("app", "check", "--config", str(config)) as running:
        assert await running.ended(40) == 0
    assert "echo: ready" in running.stderr
    assert echo_id() in running.stdout

    config = write_config(tmp_path, upstreams=[ECHO, {"name": "gone", "command": ["/no/such/program"]}])
    async with program("app", "check", "--config", str(config)) as running:
        assert await running.ended(40) == 1
    assert (
        "gone: down (the command was not found (/no/such/program): there is no such file; correct command)"
        in running.stdout
    )
    assert "echo: ready" in running.stderr


@requirement("ACCESS-53")
async def test_check_names_what_matches_no_tool_and_counts_what_each_key_sees(tmp_path: Path) -> None:
    config = write_config(
        tmp_path,
        upstreams=[{**ECHO, "cache": {"tools": ["ehco"]}}],
        access=[{"match": "echo:echo", "require": ["role:dev"]}, {"match": "ehco:*", "effect": "deny"}],
        quota={"per_tool": {"echo:echo": 5, "echo:ehco": 5}},
        browse={"words": [{"match": "echo:*", "say": ["repeat"]}, {"match": "echo:ehco", "say": ["parrot"]}]},
        auth={
            "keys": [
                {"id": "dev", "sha256": "0" * 64, "actor": "ann", "permissions": ["tools:*"], "roles": ["dev"]},
                {"id": "other", "sha256": "1" * 64, "actor": "bob", "permissions": ["tools:*"]},
            ]
        },
    )
    async with program("app", "check", "--config", str(config)) as running:
        assert await running.ended(40) == 0
    named = [line for line in running.stdout.splitlines() if line.startswith("no tool matches: ")]
    assert [line.removeprefix("no tool matches: ") for line in named] == [
        "access[1] (ehco:*)",
        "quota.per_tool (echo:ehco)",
        "browse.words[1].match (echo:ehco)",
        "upstreams.echo.cache.tools (ehco)",
    ]
    assert "no tool matches: access[1] (ehco:*)" in running.stderr
    lines = (line.split("): ") for line in running.stdout.splitlines() if line.startswith("key: "))
    (dev, has), (other, had) = ((whose, counts.split()) for whose, counts in lines)
    assert (dev, other) == ("key: dev (ann, roles dev", "key: other (bob")
    assert int(has[0]) == int(had[0]) + 1 == int(has[2])


@requirement("ACCESS-15")
async def test_explain_says_why_a_tool_is_hidden_from_an_actor(tmp_path: Path) -> None:
    config = write_config(tmp_path, access=[{"match": "echo:*", "require": ["role:dev"]}])
    asked = ("app", "explain", "echo:echo", "--actor", "ann", "--config", str(config), "--permission", "tools:*")
    async with program(*asked) as hidden, program(*asked, "--role", "dev") as shown:
        assert (await hidden.ended(40), await shown.ended(40)) == (1, 0)
    assert "access[0] (echo:*): refused (needs the role dev)" in hidden.stdout
    assert "access[0] (echo:*): visible" in shown.stdout


@requirement("OPS-1", "OPS-11")
async def test_without_a_required_upstream_it_does_not_serve_and_without_another_it_does(tmp_path: Path) -> None:
    gone = {"name": "gone", "command": ["/no/such/program"]}
    config = write_config(tmp_path, upstreams=[ECHO, {**gone, "required": True}])
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        assert await running.ended(40) == 1
    assert (
        "required upstream is not connected (gone: the command was not found (/no/such/program): there is no"
        in running.stderr
    )
    assert "Traceback" not in running.stderr
    config = write_config(tmp_path, upstreams=[{**ECHO, "required": True}, gone])
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        await address(running)
        assert await running.stop() == 0


@requirement("CHAT-78", "OPS-17")
async def test_while_it_drains_new_requests_get_503_and_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    async with ModelServer(Reply([chunk({"content": "one"}), HOLD]), Reply([chunk({"content": "two"}), HOLD])) as model:
        config = write_config(
            tmp_path,
            model={"provider": "openai-chat", "base_url": model.base_url, "model": "some-model"},
            server={"drain_s": 600},
        )
        async with serving(config) as (running, http):
            detached = {"Idempotency-Key": "k", "X-On-Disconnect": "continue"}
            async with http.stream("POST", "/engine/chat", json=chat_body(), headers=detached) as response:
                async for _ in response.aiter_raw():
                    break
            async with http.stream("POST", "/engine/chat", json=chat_body()) as response:
                pieces = response.aiter_text()
                text = await anext(pieces)
                running.process.send_signal(signal.SIGTERM)
                await until(lambda: http.get("/readyz"), lambda answer: answer.status_code != 200)
                async with httpx.AsyncClient(base_url=http.base_url, headers=HEADERS, trust_env=False) as newcomer:
                    refused = await newcomer.post("/engine/chat", json=chat_body())
                (child,) = children(running.process.pid)
                running.process.send_signal(signal.SIGTERM)
                text += "".join([piece async for piece in pieces])
            assert await running.ended() == 0
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert frames(text)[-1] == ("done", {"finish_reason": "cancelled", "usage": frames(text)[-1][1]["usage"]})
    assert not alive(child)
    assert all(line["level"] != "error" for line in running.logs()), running.stdout


@requirement("CHAT-1", "CHAT-42", "CHAT-86")
async def test_the_checker_of_the_contract_finds_nothing_wrong_with_us(tmp_path: Path) -> None:
    async with program("app", "serve", "--config", str(write_config(tmp_path)), "--port", "0") as running:
        url = await address(running)
        async with program(
            "app", "conform", url, "--key", KEY, "--tool-prompt", "Which tools are there?", "--json"
        ) as checker:
            code = await checker.ended(40)
        await running.stop()
    findings = json.loads(checker.stdout)["findings"]
    assert [finding for finding in findings if finding["status"] == "fail"] == []
    assert code == 0
    # It makes no model fail.
    unseen = {finding["id"] for finding in findings if finding["status"] == "not-testable"}
    assert unseen <= {"CHAT-36", "CHAT-37"}


@requirement("OPS-395")
@pytest.mark.parametrize("closed", ["1>&-", "0<&- 1>&- 2>&-"])
async def test_a_service_runs_with_closed_standard_streams(tmp_path: Path, closed: str) -> None:
    port = free_port()
    config = write_config(tmp_path, server={"log_format": "json", "port": port})
    line = (sys.executable, "-m", "app", "serve", "--config", str(config))
    shell = f'"$@" {closed} & echo "pid $!"; wait $!; echo "ended with $?"'
    async with command("bash", "-c", shell, "bash", *line, folder=ROOT) as running:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=HEADERS, trust_env=False) as http:

            async def ready() -> bool:
                assert "ended" not in running.stdout, running.stderr
                with suppress(httpx.ConnectError):
                    return (await http.get("/readyz")).status_code == 200
                return False

            await until(ready, pause_s=0.05)
            called = {"operation": "/echo/echo", "input": {"text": "hello"}}
            assert "hello" in (await http.post("/operations/call", json=called)).text
        os.kill(int((await running.wait_for(r"pid (\d+)", "stdout"))[1]), signal.SIGTERM)
        await running.wait_for("ended with 0", "stdout")
    assert "Traceback" not in running.stderr

"""A gate in a program of somebody: what it brings with it, what it leaves alone, and what it needs."""

import asyncio
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.test_running_calls import held
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.process import ROOT, program
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, says
from tests.support.service import BOUND_S, KEY, OTHER_KEY, FileServer, chat_body
from tests.support.until import until
from wicketgate.access.identity import Identity, hash_key
from wicketgate.config.settings import Settings
from wicketgate.engine.contract import parse_chat_request
from wicketgate.errors import ConfigError, HydrateFailed, RateLimited, UpstreamLost, UpstreamUnavailable
from wicketgate.fleet.turns import AT_ONCE, Turns
from wicketgate.gate import Gate, running_engine
from wicketgate.gateway.running_calls import RunningLimits
from wicketgate.gateway.upstream_reports import UpstreamReport
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.storage.store import Drop, Kind
from wicketgate.tools import ToolRegistry
from wicketgate.upstreams.embedded import StubUpstream

_DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {
        "/orders": {
            "get": {
                "operationId": "list_orders",
                "responses": {"200": {"description": "ok", "content": {"application/json": {"schema": {}}}}},
            }
        }
    },
}

_TOOLS = """
from wicketgate.tools import ToolRegistry

from office_tools.words import GREETING

registry = ToolRegistry()


@registry.tool
def greet() -> str:
    return GREETING
"""


async def embedded(folder: Path, upstreams: list[dict[str, Any]], **calls: str) -> dict[str, Any]:
    """Returns the report of the program ``tests.support.embedded_gate``, in an interpreter of its own."""
    wanted = folder / "wanted.json"
    wanted.write_text(json.dumps({"settings": {"upstreams": upstreams}, "calls": calls}))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.support.embedded_gate", str(wanted)),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(40):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    report: dict[str, Any] = json.loads(out.splitlines()[-1])
    return report


def python_package(folder: Path) -> dict[str, Any]:
    """A package of tools in a folder that is not searched for modules, as an upstream."""
    package = folder / "office_tools"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "words.py").write_text("GREETING = 'Good morning'\n")
    (package / "tools.py").write_text(_TOOLS)
    return {"name": "office", "python": "office_tools.tools:registry", "cwd": str(folder)}


@requirement("LIB-18")
async def test_an_embedded_gate_brings_no_web_framework_and_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    document = tmp_path / "shop.json"
    document.write_text(json.dumps(_DOCUMENT))
    async with HttpService(lambda seen: Reply(b'{"orders": []}')) as service:
        shop = {"name": "shop", "openapi": str(document), "base_url": service.url}
        report = await embedded(tmp_path, [python_package(tmp_path), shop], office="greet", shop="list_orders")
    assert report["answers"] == {"office": "ok", "shop": "ok"}
    assert report["loaded"] == []
    assert report["before"] == report["during"] == report["after"]


@requirement("LIB-2", "LIB-18")
async def test_an_embedded_gate_over_mcp_servers_brings_no_web_framework_either(tmp_path: Path) -> None:
    stdio = {"name": "files", "command": [sys.executable, "-m", "tests.support.echo_server"], "cwd": str(ROOT)}
    async with program("tests.support.talking_server") as server:
        url = (await server.wait_for(r"listening on (\S+)", "stdout")).group(1)
        http = {"name": "talking", "url": url}
        report = await embedded(tmp_path, [stdio, http], files="pid", talking="tell")
    assert report["answers"] == {"files": "ok", "talking": "ok"}
    assert report["loaded"] == []
    assert report["before"] == report["during"] == report["after"]


@requirement("LIB-17")
def test_a_gate_is_made_without_an_event_loop_and_serves_on_the_one_that_it_is_entered_on() -> None:
    made = Gate(Settings(), upstreams=[FileServer()], provider=ScriptModel(says("hello")))

    async def serve() -> list[str]:
        async with asyncio.timeout(BOUND_S), made as gate:
            await gate.wait_ready()
            return [event.name async for event in gate.engine.run(parse_chat_request(chat_body()), _ALICE)]

    assert asyncio.run(serve()) == ["text-delta", "done"]


@requirement("UP-72", "UP-65")
async def test_a_slow_server_is_waited_for_beyond_the_start_deadline_and_readiness_is_not(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    serve = f"cat {go}; exec {shlex.join([sys.executable, '-m', 'tests.support.unruly_server'])}"
    settings = Settings.model_validate(
        {
            "server": {"start_deadline_s": 0.001},
            "upstreams": [{"name": "slow", "command": ["sh", "-c", serve], "cwd": str(ROOT)}],
        }
    )
    async with asyncio.timeout(BOUND_S), Gate(settings) as gate:
        waiting = asyncio.create_task(gate.wait_settled())
        await gate.wait_ready()
        assert gate.fleet.statuses()["slow"].phase == "connecting"
        assert not waiting.done()
        await asyncio.to_thread(go.write_text, "")
        await waiting
        assert gate.fleet.statuses()["slow"].phase == "ready"
        assert any(item.server == "slow" for item in gate.runtime.catalog().tools.values())


@requirement("LIB-17")
async def test_a_gate_that_is_left_closes_what_it_opened_and_takes_nothing_more() -> None:
    model = ClosableModel()
    gate = Gate(Settings(), upstreams=[FileServer()], provider=model)
    async with asyncio.timeout(BOUND_S), gate:
        await gate.wait_ready()
        assert gate.lifecycle.ready()
    assert not gate.lifecycle.ready()
    assert model.closed


@requirement("OPS-145", "OPS-146")
async def test_calls_that_outlive_their_requests_end_with_their_key_and_with_the_gate() -> None:
    key = {"id": "laptop", "actor": "ann", "sha256": hashlib.sha256(b"k" * 32).hexdigest()}
    settings = {"auth": {"keys": [key]}, "tasks": {"after_s": 3, "max_running": 2}}
    gate = Gate(Settings.model_validate(settings), upstreams=[FileServer()], provider=ScriptModel())
    assert gate.runtime.running.limits == RunningLimits(3, 2)
    async with asyncio.timeout(BOUND_S), gate:
        await gate.wait_ready()
        of_key, of_gate = [
            await held(gate.runtime.running, "ann", "t", asyncio.Event().wait(), key_id=id)
            for id in ("laptop", "desktop")
        ]
        assert gate.keys.authenticator.authenticate("k" * 32)
        revoked = {**settings, "auth": {"keys": [{**key, "suspended": True}]}}
        await gate.apply(Settings.model_validate(revoked))
        assert await of_key.settled(None)
        assert not of_gate.ended
        gate.drain.begin(0)
        with pytest.raises(RateLimited):
            await held(gate.runtime.running, "ann", "t", asyncio.Event().wait())
    assert of_gate.ended


@requirement("ACCESS-101")
async def test_calls_without_a_request_are_counted_over_all_processes_of_a_store(tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "auth": {"seal_keys": ["k" * 40]},
            "storage": {"url": f"sqlite:///{tmp_path / 'store.db'}"},
            "tasks": {"max_running_per_actor": 2},
            "upstreams": [{"name": "files", "command": ["true"], "enabled": False}],
        }
    )
    one, other = (Gate(settings, upstreams=[FileServer()], provider=ScriptModel()) for _ in range(2))
    async with asyncio.timeout(BOUND_S), one, other:
        end = asyncio.Event()
        here = await held(one.runtime.running, "ann", "t", end.wait())
        await held(other.runtime.running, "ann", "t", asyncio.Event().wait())
        for gate in (one, other):
            with pytest.raises(RateLimited) as full:
                await held(gate.runtime.running, "ann", "t", asyncio.Event().wait())
            assert full.value.details == {"scope": "actor", "retry_after_s": 1}
            await held(gate.runtime.running, "bob", "t", asyncio.Event().wait())
            assert gate.runtime.running.refused["actor"] == 1
        end.set()
        await here.settled(None)
        one.runtime.running.give(here)
        # Its answer was given, and another call needs the place.
        await held(one.runtime.running, "ann", "t", asyncio.Event().wait())
        assert one.runtime.running.get("ann", here.id) is None
    async with asyncio.timeout(BOUND_S), Gate(settings, upstreams=[FileServer()], provider=ScriptModel()) as third:
        for _ in range(2):
            await held(third.runtime.running, "ann", "t", asyncio.Event().wait())


@requirement("OPS-487")
async def test_a_key_revoked_at_another_process_ends_also_where_its_news_were_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def settings(*keys: str) -> Settings:
        entries = [{"id": key[3:7], "sha256": hash_key(key), "actor": "ann", "permissions": []} for key in keys]
        auth = {"seal_keys": ["k" * 40], "keys": entries}
        return Settings.model_validate({"auth": auth, "storage": {"url": f"sqlite:///{tmp_path / 'store.db'}"}})

    both = settings(KEY, OTHER_KEY)
    one, other = (Gate(both, upstreams=[FileServer()], provider=ScriptModel()) for _ in range(2))
    async with asyncio.timeout(BOUND_S), one, other:
        await one.shared.news.tell("something")
        # The other one stands still until the log has lost the entry.
        with monkeypatch.context() as still:
            still.setattr(other.shared.news, "_read", partial(asyncio.sleep, 0))
            await one.apply(settings(OTHER_KEY))
            await other.shared.store.step([Drop(Kind("news"), "all")])
            await one.shared.news.tell("something else")
            assert other.keys._ring.find(hash_key(KEY)) is not None
        await until(lambda: other.keys._ring.find(hash_key(KEY)) is None)
        assert other.keys._ring.find(hash_key(OTHER_KEY)) is not None


class ClosableModel(ScriptModel):
    closed = False

    async def aclose(self) -> None:
        self.closed = True


@requirement("OPS-8")
async def test_settings_that_cannot_be_applied_change_nothing() -> None:
    settings = Settings.model_validate({"quota": {"per_actor": 5}})
    async with asyncio.timeout(BOUND_S), Gate(settings, upstreams=[FileServer()], provider=ScriptModel()) as gate:
        with pytest.raises(ConfigError, match="wicketgate lock"):
            await gate.apply(Settings.model_validate({"pins": {"file": "/nowhere/wicketgate.lock"}}))
        assert gate.settings is settings
        await gate.apply(Settings())
        assert gate.settings == Settings()


_ALICE = Identity("alice", ("tools:*",))


async def test_a_gate_is_entered_once() -> None:
    gate = Gate(Settings())
    async with gate:
        with pytest.raises(RuntimeError, match="once"):
            await gate.__aenter__()
    with pytest.raises(RuntimeError, match="once"):
        async with gate:
            pass


class Waking(StubUpstream):
    """It is what it is told to be. Its tools are there once they are released."""

    def __init__(self, name: str) -> None:
        super().__init__([{"name": "one", "inputSchema": {"type": "object"}}], name=name)
        self.status = UpstreamStatus("connecting")
        self.released = asyncio.Event()
        self.changed: Callable[[str], None] | None = None

    async def supervise(self, changed: Callable[[str], None]) -> None:
        self.changed = changed
        await asyncio.Event().wait()

    async def list_tools(self) -> Any:
        await self.released.wait()
        return await super().list_tools()

    def connect(self) -> None:
        assert self.changed is not None
        self.status = UpstreamStatus("ready")
        self.changed(self.name)


def failing(report: UpstreamReport) -> None:
    raise RuntimeError(report.name)


@requirement("OPS-95")
async def test_each_upstream_is_reported_when_it_is_ready_or_failed_and_at_each_change_afterwards() -> None:
    reports: asyncio.Queue[UpstreamReport] = asyncio.Queue()
    slow, dead = Waking("slow"), Waking("dead")
    gate = Gate(Settings(), upstreams=[slow, dead], provider=ScriptModel(), waits=False)
    gate.lifecycle.reports.listen(failing)
    gate.lifecycle.reports.listen(reports.put_nowait)
    async with asyncio.timeout(BOUND_S), gate:
        dead.status = UpstreamStatus("down", "connection refused")
        first = await reports.get()
        assert (first.name, first.phase, first.error, first.tools) == ("dead", "down", "connection refused", 0)
        slow.connect()
        # It is not reported as ready before its tools are there.
        slow.released.set()
        second = await reports.get()
        assert (second.name, second.phase, second.error, second.tools) == ("slow", "ready", "", 1)
        slow.status = UpstreamStatus("down", "its process ended")
        third = await reports.get()
        assert (third.name, third.phase, third.error, third.tools) == ("slow", "down", "its process ended", 1)
        assert second.seconds == third.seconds > 0
        dead.released.set()
        dead.connect()
        fourth = await reports.get()
        assert (fourth.name, fourth.phase, fourth.error, fourth.tools) == ("dead", "ready", "", 1)
        assert reports.empty()


@requirement("OPS-95")
async def test_an_upstream_without_its_tools_is_reported_with_the_reason() -> None:
    class Mute(StubUpstream):
        async def list_tools(self) -> Any:
            raise UpstreamUnavailable("mute is not connected.")

    reports: asyncio.Queue[UpstreamReport] = asyncio.Queue()
    gate = Gate(Settings(), upstreams=[Mute([], name="mute")], provider=ScriptModel())
    gate.lifecycle.reports.listen(reports.put_nowait)
    async with asyncio.timeout(BOUND_S), gate:
        report = await reports.get()
    assert (report.phase, report.tools) == ("ready", 0)
    assert report.error


def _token_requests() -> int:
    return sum("IssuedCredentials" in repr(task.get_coro()) for task in asyncio.all_tasks())


@pytest.mark.parametrize("kind", ["http", "sse", "openapi"])
async def test_closing_a_gate_while_a_token_is_fetched_leaves_no_task(kind: str) -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def hold(seen: Seen) -> Reply:
        asked.set()
        await go_on.wait()
        return Reply(b"{}")

    async with HttpService(hold) as service, asyncio.timeout(BOUND_S):
        oauth = {"token_url": service.url, "client_id": "gw", "client_secret": "s"}
        place = {"openapi": f"{service.url}/api.json"} if kind == "openapi" else {"url": service.url, "transport": kind}
        settings = Settings.model_validate({"upstreams": [{"name": "shop", "oauth": oauth, **place}]})
        async with Gate(settings, waits=False):
            await asked.wait()
            assert _token_requests() == 1
        assert _token_requests() == 0
        go_on.set()


@requirement("UP-72", "UP-56")
async def test_those_that_wait_for_their_turn_to_connect_are_waited_for_too(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds: list[float] = []

    async def wait(bound_s: float) -> None:
        bounds.append(bound_s)

    for count in (1, 1 + 4 * AT_ONCE):
        upstreams = [{"name": f"u{number}", "url": "http://127.0.0.1:1"} for number in range(count)]
        gate = Gate(Settings.model_validate({"upstreams": upstreams}))
        monkeypatch.setattr(gate.lifecycle, "wait_settled", wait)
        await gate.wait_settled()
    assert bounds[1] - bounds[0] == pytest.approx(Turns.longest_wait_s(4 * AT_ONCE))
    assert bounds[1] > bounds[0]


@requirement("LIB-28")
@pytest.mark.parametrize("error", [ValueError("mine"), ConfigError("mine"), KeyboardInterrupt()])
async def test_what_a_program_raises_within_a_gate_comes_out_unchanged(error: BaseException) -> None:
    with pytest.raises(type(error)) as found:
        async with asyncio.timeout(BOUND_S), Gate(Settings(), upstreams=[FileServer()], provider=ScriptModel()):
            raise error
    assert found.value is error
    with pytest.raises(type(error)) as found:
        async with running_engine(Settings(), upstreams=[FileServer()], provider=ScriptModel()):
            raise error
    assert found.value is error


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def _greeting() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool
    def greet(name: str) -> str:
        return f"Hello {name}"

    return registry


@requirement("LIB-26", "LIB-27", "LIB-24")
async def test_functions_of_a_program_stand_beside_the_servers_of_a_mapping() -> None:
    echo = {"command": sys.executable, "args": ["-m", "tests.support.echo_server"], "cwd": str(ROOT)}
    async with asyncio.timeout(BOUND_S), Gate({"mcpServers": {"echo": echo}}, tools=[add]) as gate:
        assert {item.server for item in gate.runtime.catalog().items.values()} == {"echo", "local"}
        found = await gate.runtime.call_tool("tool_execute", {"tool_id": "local:add", "args": {"a": 1, "b": 2}})
        assert found == "3"
        await gate.apply(Settings())
        assert {item.server for item in gate.runtime.catalog().items.values()} == {"local"}


@requirement("LIB-26")
@pytest.mark.parametrize("tools", [_greeting(), [add], add])
async def test_functions_come_as_a_registry_a_list_or_alone(tools: object) -> None:
    async with asyncio.timeout(BOUND_S), running_engine({}, tools=tools, provider=ScriptModel()) as engine:
        assert engine is not None
    with pytest.raises(ConfigError, match="an upstream has the name local"):
        Gate({"upstreams": [{"name": "local", "command": ["x"]}]}, tools=tools)


@requirement("LIB-26")
@pytest.mark.parametrize(
    ("tools", "said"), [("add", "'add' is not a function"), ([add, add], "two tools are called 'add'")]
)
def test_what_is_no_function_is_refused(tools: object, said: str) -> None:
    with pytest.raises(ConfigError, match=f"^tools: {said}"):
        Gate(tools=tools)


class Unknown:
    pass


def strange(x: Unknown) -> str:
    return str(x)


@requirement("LIB-26")
def test_a_function_without_a_schema_is_refused_with_its_reason() -> None:
    with pytest.raises(
        ConfigError, match=r"^tools: the tool 'strange' has no usable signature .*class 'tests.*Unknown'"
    ):
        Gate(tools=[add, strange])


@requirement("LIB-27")
async def test_a_call_of_a_gate_that_was_never_entered_says_how_to_open_it() -> None:
    gate = Gate(tools=[add], provider=ScriptModel())
    with pytest.raises(UpstreamUnavailable, match=r"^The gate is not open: enter it \(async with\)") as refused:
        await gate.runtime.execute("local:add", {"a": 1, "b": 2})
    assert not refused.value.retryable


@requirement("LIB-27")
async def test_a_call_of_a_server_that_still_connects_says_so() -> None:
    settings = {
        "server": {"start_deadline_s": 0.1},
        "upstreams": [{"name": "slow", "command": [sys.executable, "-c", "import time; time.sleep(600)"]}],
    }
    async with asyncio.timeout(BOUND_S), Gate(settings, provider=ScriptModel()) as gate:
        with pytest.raises(UpstreamUnavailable, match=r"^slow is still connecting\. Try again in a moment\.$"):
            await gate.runtime.execute("slow:anything", {})
        nobody = CallContext(Identity("ann", ("tools:other:*",)), "c", "s")
        with pytest.raises(HydrateFailed, match="No such tool"):
            await gate.runtime.execute("slow:anything", {}, nobody)


@requirement("LIB-27")
async def test_a_call_of_a_server_that_failed_says_why_and_not_that_the_tool_is_unknown() -> None:
    settings = {"upstreams": [{"name": "typo", "command": ["no-such-command-here"]}]}
    async with asyncio.timeout(BOUND_S), Gate(settings, provider=ScriptModel()) as gate:
        with pytest.raises(UpstreamUnavailable, match=r"^typo has given no tools: the command was not found"):
            await gate.runtime.execute("typo:anything", {})
        nobody = CallContext(Identity("ann", ("tools:other:*",)), "c", "s")
        with pytest.raises(HydrateFailed, match="No such tool"):
            await gate.runtime.execute("typo:anything", {}, nobody)


@requirement("LIB-17")
async def test_a_gate_that_was_left_takes_no_call_and_ends_those_under_way() -> None:
    entered = asyncio.Event()

    async def hold() -> None:
        entered.set()
        await asyncio.Event().wait()

    def done() -> str:
        return "done"

    async with asyncio.timeout(BOUND_S):
        async with Gate(tools=[hold, done]) as gate:
            under_way = asyncio.create_task(gate.runtime.execute("local:hold", {}))
            await entered.wait()
        with pytest.raises(UpstreamLost, match=r"^The gate is stopping"):
            await under_way
        with pytest.raises(UpstreamUnavailable, match=r"^The gate is stopping"):
            await gate.runtime.execute("local:done", {})

"""Runs the service from start to end: logs, the gate, reloads, the greeting and the drain.

It works the same under ``wicketgate serve``, ``uvicorn app.main:app`` and any other ASGI server, as far as that server
allows.
"""

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from app.local_key import LocalKey
from app.logs import Log, service_logs, set_log_level
from app.mcp.door import McpDoors
from app.memory import giving_back
from app.pace import Pace
from app.port.connections import ConnectionCounts
from app.process import collect_seldom, on_hangup, on_stop, search_python_folders
from app.start_lines import say_start, say_stop
from app.telemetry import SpanCounts, telemetry
from app.webhook import approval_webhook
from app.workers.metrics import WorkerMetrics
from app.workers.place import READY, Place
from wicketgate.config.reload import Reloader
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.gate import Gate
from wicketgate.log_text import Redactor

log = logging.getLogger("wicketgate.service")

_OTHER_SERVER = (
    "this is not the server of `wicketgate serve`: it chooses the address itself, bounds neither connections, request "
    "heads nor readers that stop reading, and at its stop has no bound for what does not end "
    "(uvicorn: set --timeout-graceful-shutdown)"
)
_USUAL_ADDRESS = "http://127.0.0.1:8000"
_EVERY_ADDRESS = (("//0.0.0.0:", "//127.0.0.1:"), ("//[::]:", "//[::1]:"))
_ADDRESS_IS_THE_SERVERS = "at the address that your server shows (here as uvicorn has it by default)"
_LAST_ENDS_S = 1.0
_SOON_READY_S = 0.3
"""For this time another server waits for the first tools: embedders ask right after the start."""
_CONFIGURED_KEYS = (
    "  Key: one of auth.keys, here as WG_KEY. Each was shown when it was made (wicketgate init, wicketgate key new);",
    "  the file holds only hashes. Another one: wicketgate key new --actor me",
)
LOOP_STEP_S = 0.1
_WORTH_A_LINE_S = 1.0


@dataclass(frozen=True, slots=True)
class OwnServer:
    """The server of ``wicketgate serve``, which drains the gate before it closes connections.

    *fail* stops it with the reason why the start has failed. *connections* counts those of its port.
    """

    address: str
    fail: Callable[[ConfigError], None]
    connections: ConnectionCounts


Greeting = Callable[[Gate, str, LocalKey | None], str]
"""Makes the text that is shown when the gate is ready, from its address and its own key, if it has one."""


@dataclass(frozen=True, slots=True)
class Program:
    """Marks a process as this service's own: logs, garbage collector, ``sys.path`` and signals are the service's too.

    *load* reads the configuration again, on SIGHUP, and whenever the file *watched* changes. *greeting* is shown in the
    place of the usual one. With a *place* the process is one of several workers: their supervisor speaks to the people.
    """

    load: Callable[[], Settings]
    watched: Path | None = None
    server: OwnServer | None = None
    greeting: Greeting | None = None
    place: Place | None = None


@asynccontextmanager
async def service_lifespan(
    gate: Gate,
    doors: McpDoors,
    program: Program | None,
    local: LocalKey | None,
    loop_late: Callable[[float], None],
    pace: Pace,
    spans: SpanCounts,
    workers: WorkerMetrics | None = None,
) -> AsyncIterator[None]:
    """Raises ConfigError if a required upstream is missing; the own server gets the error by ``fail`` instead.

    *loop_late* gets the delays of the event loop, in seconds.
    """
    server = program.server if program is not None else None
    async with AsyncExitStack() as stack:
        # The process: logs first, so that every later line is written.
        screen: Log | None = None
        if program is not None:
            out = _own_process(stack, gate, local)
            if server is not None and program.place is None and out.in_terminal:
                stack.callback(say_stop(out, gate))
                stack.callback(say_start(out, gate))
                screen = out
            if program.place is not None:
                stack.enter_context(_bound_to_supervisor(program.place))
            pace.install(asyncio.get_running_loop())
            stack.enter_context(giving_back(gate.wait_ready))
        if server is None:
            log.info(_OTHER_SERVER)
        # The gate, and the doors in front of it.
        _warn_of_ends(gate)
        gate.applied.on_apply(lambda settings: _warn_of_ends(gate))
        gate.switches.keep_rows()
        if gate.shared.ring_check is not None:
            gate.shared.ring_check.refused = partial(_end, server)
        try:
            mask = Redactor(gate.settings.secrets())
            gate.applied.on_apply(lambda settings: mask.learn(settings.secrets()))
            await stack.enter_async_context(telemetry(spans, mask))
            await stack.enter_async_context(gate)
        except ConfigError as error:
            if server is not None:
                server.fail(error)
            raise
        await stack.enter_async_context(doors.running())
        await stack.enter_async_context(approval_webhook(gate))
        if server is None:
            with suppress(TimeoutError):
                await asyncio.wait_for(gate.wait_ready(), _SOON_READY_S)
        if workers is not None:
            await stack.enter_async_context(workers.sharing())
        # Required upstreams: they keep another server from starting; the own one answers in the meantime.
        if server is None and _required(gate):
            await _wait_for_required(gate, logs=True)
        # Signals: reloads, and the drain under another server.
        reloader: Reloader | None = None
        if program is not None:
            reloader = Reloader(
                program.load,
                gate.apply,
                ready=gate.wait_ready,
                watched=program.watched,
                unreadable=gate.records.events.reload_failed,
            )
            stack.enter_context(on_hangup(reloader.request))
            await stack.enter_async_context(reloader.running())
        if program is not None and server is None:
            stack.enter_context(on_stop(lambda: gate.drain.begin(gate.settings.server.drain_s)))
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(_greet_when_ready(gate, program, local, screen)),
                tasks.create_task(watch_loop(loop_late)),
                tasks.create_task(_take_over(gate, reloader), name="servers that are switched at other processes"),
            ]
            taking_over = tasks.create_task(gate.take_over_runs(), name="runs of processes that are gone")
            gate.drain.follow(partial(_cancel, taking_over))
            running.append(taking_over)
            yield
            for task in running:
                task.cancel()
        if server is None:
            doors.ask_no_more()
            await _drain(gate)


async def _take_over(gate: Gate, reloader: Reloader | None) -> None:
    """Switches servers as other processes have them. A worker in place of another one reads the configuration again
    when it starts, which undoes what was switched before."""
    if reloader is not None:
        await reloader.settled()
    await gate.switches.take_over()


def _own_process(stack: AsyncExitStack, gate: Gate, local: LocalKey | None) -> Log:
    server = gate.settings.server
    redactor = Redactor([*gate.settings.secrets(), local.secret if local else ""])
    out = stack.enter_context(service_logs(server.log_level, redactor, log_format=server.log_format))

    def put_in_force(settings: Settings) -> None:
        redactor.learn(settings.secrets())
        set_log_level(settings.server.log_level)
        search_python_folders(settings)

    gate.applied.on_apply(put_in_force)
    search_python_folders(gate.settings)
    collect_seldom()
    return out


@contextmanager
def _bound_to_supervisor(place: Place) -> Iterator[None]:
    """Ends this worker as a first SIGTERM does when its supervisor has died."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        loop.remove_reader(place.lifeline)
        log.error("the supervisor of this worker has died: the worker stops")
        signal.raise_signal(signal.SIGTERM)

    loop.add_reader(place.lifeline, end)
    try:
        yield
    finally:
        loop.remove_reader(place.lifeline)


def _end(server: OwnServer | None, error: ConfigError) -> None:
    if server is not None:
        server.fail(error)
    else:
        signal.raise_signal(signal.SIGTERM)


def _warn_of_ends(gate: Gate) -> None:
    for note in gate.keys.notes():
        log.warning("%s", note)


def _required(gate: Gate) -> list[str]:
    there = gate.fleet.members
    return [upstream.name for upstream in gate.settings.upstreams if upstream.required and upstream.name in there]


async def _wait_for_required(gate: Gate, *, logs: bool) -> None:
    """Waits until the gate is ready. Raises ConfigError, and *logs* it where that would be a traceback at most."""
    await gate.wait_ready()
    missing = gate.lifecycle.missing(_required(gate))
    if missing:
        names = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        error = ConfigError(f"A required upstream is not connected ({names}). Start it, or set required: false")
        if logs:
            log.error("%s", error)
        raise error


async def _greet_when_ready(gate: Gate, program: Program | None, local: LocalKey | None, screen: Log | None) -> None:
    server = program.server if program is not None else None
    try:
        # A terminal is shown the last words of the command, and so is that of a supervisor.
        await _wait_for_required(gate, logs=screen is None and (program is None or program.place is None))
    except ConfigError as error:
        if server is not None:
            server.fail(error)
        return
    if program is None:
        if local is not None:
            log.info("Ready, without configured keys: app.state.local_key is the key of this run")
        return
    if program.place is not None:
        os.write(program.place.report, READY)
        return
    address = server.address if server is not None else ""
    greets = program.greeting
    greeting = usual_greeting(address, local, gate.settings) if greets is None else greets(gate, address, local)
    if screen is not None:
        screen.say(greeting)
        return
    with suppress(OSError, ValueError):  # the terminal is gone or closed
        click.echo(greeting, err=True)


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _drain(gate: Gate) -> None:
    """Ends the runs that a client could resume, after another server has closed its connections."""
    drain_s = gate.settings.server.drain_s
    gate.drain.begin(drain_s)
    with suppress(TimeoutError):
        async with asyncio.timeout(drain_s + _LAST_ENDS_S):
            await gate.drain.wait()


def usual_greeting(address: str, local: LocalKey | None, settings: Settings) -> str:
    """Returns the address of the service and a command to try. For stderr, unless stdout is a terminal: elsewhere that
    carries only log lines."""
    url = reachable(address or _USUAL_ADDRESS)
    lines = ["", f"Wicketgate is ready on {address}" if address else f"Wicketgate is ready, {_ADDRESS_IS_THE_SERVERS}"]
    if settings.server.console:
        lines.append(f"  Console: {console_link(url, local)}")
    lines.append(f"  MCP clients: {url}/mcp")
    lines += [
        *(_credential_lines(settings) if local is None else _key_lines(local, one_process=bool(address))),
        "",
        "Try it:",
        *chat_lines(url, local, "What time is it in Tokyo?"),
    ]
    return "\n".join([*lines, ""])


def reachable(address: str) -> str:
    """Returns *address* as a client on this machine can use it."""
    for every, one in _EVERY_ADDRESS:
        address = address.replace(every, one)
    return address


def console_link(url: str, local: LocalKey | None) -> str:
    """Returns the address of the console; where this start has made the key, one that signs in once."""
    sign_in = local.sign_in if local is not None else None
    return f"{url}/console/" if sign_in is None else f"{url}/console/#code={sign_in.code}"


def chat_lines(url: str, local: LocalKey | None, question: str) -> list[str]:
    """Returns a command that asks *question*; it can be pasted as it is, if the key was made by this start."""
    key = local.secret if local is not None and local.file is None else "$WG_KEY"
    body = {"messages": [{"role": "user", "content": question}], "metadata": {"correlation_id": "hello-1"}}
    return [
        f'  curl -N {url}/engine/chat -H "Authorization: Bearer {key}" \\',
        f"    -H 'Content-Type: application/json' -d '{json.dumps(body)}'",
    ]


def _credential_lines(settings: Settings) -> list[str]:
    """Names the credentials with which callers come, of all that is configured."""
    auth = settings.auth
    lines = [*_CONFIGURED_KEYS] if auth.keys else []
    if auth.issuers:
        named = ", ".join(f"{each.name} ({each.issuer})" for each in auth.issuers)
        here = "" if auth.keys else ", here as WG_KEY"
        lines.append(f"  Token: of {named}{here}. MCP clients have their user log in there by themselves.")
    if auth.trusted_headers is not None:
        lines.append("  Signed headers: of the gateway in front, at auth.trusted_headers.addresses.")
    return lines


def _key_lines(local: LocalKey, *, one_process: bool) -> list[str]:
    if local.file is None:
        lines = [
            f"  Key, for this run only: {local.secret}",
            "  Only callers on this machine are served. For others, put a key into auth.keys (wicketgate key new).",
        ]
        if not one_process:
            lines.append("  Each process makes its own key: several workers need auth.keys or auth.key_file.")
        return lines
    return [
        f"  Key: as shown at the first start ({local.file} keeps its hash; without that file, a start makes a new one)"
    ]


async def watch_loop(observe: Callable[[float], None]) -> None:
    """Gives *observe* the seconds by which each step of a tenth of a second came late (OPS-38). Runs until it is
    cancelled.

    A loop that is late answers every client late, and a load balancer that asks for ``/healthz`` may take the service
    for dead. The histogram in ``/metrics`` shows it; a long delay is logged too.
    """
    loop = asyncio.get_running_loop()
    due = loop.time() + LOOP_STEP_S
    while True:
        await asyncio.sleep(max(0.0, due - loop.time()))
        late_s = max(0.0, loop.time() - due)
        observe(late_s)
        if late_s >= _WORTH_A_LINE_S:
            log.warning("the event loop was busy for %.1f s: nothing else was served", late_s)
        due = loop.time() + LOOP_STEP_S

"""``make bench-start``: what a start costs, what the service holds at rest, and what the first client of MCP adds.

The real command is started as a user starts it. With ``--beside`` another checkout is started in turns with this one.
"""

import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path

from bench.catalogs import ROOT
from bench.checkouts import HERE, Checkout, Measures, add_beside, add_value, range_table
from bench.cpu import cpu_s
from bench.loop_probe import probe
from bench.machine import machine, write
from bench.table import Table, figure, markdown
from wicketgate.access.identity import hash_key

_BOUND_S = 60.0
_POLL_S = 0.005
_AT_REST_S = 3.0
_SMALL_SERVER = ROOT / "bench" / "console_server.py"
_KEY = "wg_bench_" + "k" * 32
CONFIGURATIONS = ("no upstreams", "one", "the demo")
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}},
}
_READY = re.compile(rb"ready on http://")
_IMPORT = re.compile(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)")


@dataclass(frozen=True)
class Start:
    """CPU and wall time in seconds, memory in MB."""

    listening_cpu: float
    listening: float
    ready_cpu: float
    ready: float
    resident: float
    proportional: float


@dataclass(frozen=True, slots=True)
class FirstClient:
    """The first request of a client of MCP, in milliseconds: the CPU time of the service (answers to the prober
    included), how long it took, the longest pause of the loop in that time, and how much the prober overslept at most;
    the memory after it, in MB."""

    cpu_ms: float
    took_ms: float
    pause_ms: float
    overslept_ms: float
    resident: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--configurations", nargs="+", choices=CONFIGURATIONS, default=CONFIGURATIONS)
    add_beside(parser)
    parser.add_argument("--json", type=Path, default=ROOT / "bench" / "out" / "start.json")
    options = parser.parse_args()
    checkouts = [*options.beside, HERE]
    before = machine()
    measures: Measures = {}
    overslept: list[float] = []
    with tempfile.TemporaryDirectory() as scratch, _configurations(Path(scratch)) as configurations:
        # Modules are compiled once, as in an installed program, and for all checkouts in the same way.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(Path(scratch, "compiled"))
        for checkout in checkouts:  # what is compiled stays
            start(checkout, *configurations["no upstreams"])
        for _ in range(options.rounds):
            for name in options.configurations:
                for checkout in checkouts:
                    for what, value in asdict(start(checkout, *configurations[name])).items():
                        add_value(measures, f"{name}: {_TOLD[what]}", checkout, value)
            for checkout in checkouts:
                longest, late = pauses_ms(checkout, *configurations["one"])
                add_value(measures, "longest pause of the loop in a start, ms", checkout, longest)
                client = first_client(checkout, *configurations["one"])
                overslept += late, client.overslept_ms
                for what, value in (told for told in asdict(client).items() if told[0] in _TOLD_CLIENT):
                    add_value(measures, _TOLD_CLIENT[what], checkout, value)
        imports = {checkout.name: imports_ms(checkout) for checkout in checkouts}
    for made in (range_table("A start", measures), _imported(imports)):
        print(f"{markdown(made)}\n")
    print(f"- in a pause is what the prober overslept itself: {figure(max(overslept))} ms at most")
    write(options.json, before, {"measures": measures, "imports_ms": imports})


_TOLD = {
    "listening_cpu": "CPU s to listening",
    "ready_cpu": "CPU s to ready",
    "listening": "s to listening",
    "ready": "s to ready",
    "resident": "MB resident",
    "proportional": "MB proportional",
}
_TOLD_CLIENT = {
    "cpu_ms": "first client of MCP, CPU ms",
    "took_ms": "first client of MCP, ms",
    "pause_ms": "longest pause of the loop while it waits, ms",
    "resident": "after the first client, MB resident",
}


@contextmanager
def _configurations(folder: Path) -> Iterator[Mapping[str, tuple[Path, Mapping[str, str]]]]:
    """Gives files of configurations by name, with the variables that they need."""
    from examples.demo import CONFIG, shop

    none, one = folder / "none.yaml", folder / "one.yaml"
    none.write_text("upstreams: []\n")
    command = json.dumps([sys.executable, str(_SMALL_SERVER), "10", "1"])
    one.write_text(f"{keyed()}upstreams: [{{name: area, command: {command}}}]\n")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    with shop() as url:
        yield dict(zip(CONFIGURATIONS, ((none, {}), (one, {}), (CONFIG, {"SHOP_URL": url, "PATH": path})), strict=True))


def keyed() -> str:
    """Returns the lines of a configuration that know the key of ``first_client``."""
    return f"auth: {{keys: [{{id: bench, sha256: {hash_key(_KEY)}, actor: bench, permissions: ['*']}}]}}\n"


@contextmanager
def _serving(
    checkout: Checkout, config: Path, environ: Mapping[str, str]
) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Gives the process and its port, where nobody may listen yet."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    line = [checkout.python, "-m", "app", "serve", "--config", str(config), "--port", str(port)]
    process = subprocess.Popen(
        line,
        cwd=checkout.folder,
        env={**checkout.env, **environ},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        yield process, port
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=_BOUND_S)


def _connected(port: int) -> socket.socket:
    until = time.monotonic() + _BOUND_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=_BOUND_S)
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(_POLL_S)


def _wait_until_ready(process: "subprocess.Popen[bytes]") -> None:
    """Raises EOFError if the process ends before."""
    assert process.stderr is not None
    for line in process.stderr:
        if _READY.search(line):
            return
    raise EOFError("the service has ended")


def start(checkout: Checkout, config: Path, environ: Mapping[str, str]) -> Start:
    began = time.monotonic()
    with _serving(checkout, config, environ) as (process, port):
        with _connected(port) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            connection.recv(1)
            listening_cpu, listening = cpu_s(process.pid), time.monotonic() - began
        _wait_until_ready(process)
        ready_cpu, ready = cpu_s(process.pid), time.monotonic() - began
        time.sleep(_AT_REST_S)
        resident, proportional = _memory(process.pid)
    return Start(listening_cpu, listening, ready_cpu, ready, resident, proportional)


def _memory(pid: int) -> tuple[float, float]:
    """The resident memory of a process and its proportional share, in MB."""
    sizes = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return int(sizes["Rss"]) / 1024, int(sizes["Pss"]) / 1024


def pauses_ms(checkout: Checkout, config: Path, environ: Mapping[str, str]) -> tuple[float, float]:
    """Milliseconds from the first answer to a moment after readiness: the longest that ``/healthz`` took, and the
    longest that the prober overslept, which is what the machine does."""
    stop = threading.Event()
    with _serving(checkout, config, environ) as (process, port):
        _connected(port).close()

        def until_ready() -> None:
            _wait_until_ready(process)
            time.sleep(0.5)
            stop.set()

        threading.Thread(target=until_ready, daemon=True).start()
        samples = probe("127.0.0.1", port, stop)[1:]  # the first waits for the port
    return max(took for _, took, _ in samples), max(overslept for *_, overslept in samples)


def first_client(checkout: Checkout, config: Path, environ: Mapping[str, str]) -> FirstClient:
    """Measures the first request of a client of MCP at a service at rest. *config* has the lines of ``keyed``."""
    stop = threading.Event()
    took: list[float] = []
    with _serving(checkout, config, environ) as (process, port):
        _wait_until_ready(process)

        def ask() -> None:
            time.sleep(0.5)
            try:
                before = cpu_s(process.pid)
                took.extend((_initialize_ms(port), (cpu_s(process.pid) - before) * 1e3))
            finally:
                stop.set()

        threading.Thread(target=ask, daemon=True).start()
        samples = probe("127.0.0.1", port, stop)[1:]
        time.sleep(_AT_REST_S)
        resident, _ = _memory(process.pid)
    if not took:
        raise OSError("the first client of MCP was refused")
    waited, used = took
    pause, overslept = max(took for _, took, _ in samples), max(slept for *_, slept in samples)
    return FirstClient(used, waited, pause, overslept, resident)


def _initialize_ms(port: int) -> float:
    """Raises OSError if the service refuses."""
    headers = {
        "Authorization": f"Bearer {_KEY}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
    }
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=_BOUND_S)) as connection:
        began = time.monotonic()
        connection.request("POST", "/mcp", json.dumps(_INITIALIZE), headers)
        answer = connection.getresponse()
        answer.read()
    if answer.status != HTTPStatus.OK:
        raise OSError(f"the service answers {answer.status}")
    return (time.monotonic() - began) * 1e3


def imports_ms(checkout: Checkout) -> dict[str, float]:
    """Milliseconds of the modules that ``serve`` imports before it listens, by package, ours by room."""
    # As the command does it: without the command line of httpx, whose packages would be counted.
    code = "import sys; sys.modules['httpx._main'] = None; import app.cli, app.commands.serve"
    line = [checkout.python, "-X", "importtime", "-c", code]
    text = subprocess.run(line, cwd=checkout.folder, capture_output=True, text=True, check=True).stderr
    spent: Counter[str] = Counter()
    for took, module in _IMPORT.findall(text):
        parts = module.split(".")
        spent[".".join(parts[: 2 if parts[0] == "wicketgate" else 1])] += int(took)
    return {name: round(took / 1e3, 1) for name, took in spent.most_common(20)}


def _imported(imports: Mapping[str, Mapping[str, float]]) -> Table:
    names = list(dict.fromkeys(name for each in imports.values() for name in each))
    rows = [(name, *(figure(each.get(name)) for each in imports.values())) for name in names]
    return Table("Imports before listening, ms by package", ("", *imports), rows)


if __name__ == "__main__":
    main()

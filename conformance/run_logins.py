"""``make test-login``: the clients that people use log in at our door with real issuers.

It prints a table of what came of it.

Behind the door of the namespaced face stands the server of the client matrix. The issuer is oidc-provider; a second one
gives opaque tokens, which the gate asks it about. Exits 1 if a cell is not ok that ``logins.yml`` does not name, or an
entry of it named none, and 2 if a package cannot be had.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from conformance.accounts import accounts
from conformance.door import Door
from conformance.driver import Driver, Failed, driver
from conformance.environments import exit_code, modules_of
from conformance.issuer import CAUTIOUS, Issuer, browse, issuer
from conformance.judge import Check, judge, read_expected, stale
from conformance.processes import configuration
from conformance.run_clients import MATRIX, Client
from tests.support.ports import free_port
from tests.support.process import Program, program

NEEDED, WANTED = "tools", "tools.run"
SCOPES = (NEEDED, WANTED)
_ASKER = {"client_id": "gate", "client_secret": "the secret of the gate at its issuer"}
COLUMNS = ("document", "registered", "expired", "audience", "scopes", "less", "opaque")
NOTES = Path(__file__).with_name("logins.yml")
CLIENTS = tuple(client for client in MATRIX if client.environment == client.name)
"""Over HTTP, and with a login of their own."""


@dataclass(frozen=True, slots=True)
class Gate:
    """*url* is that of its main face; tokens of *issuer* are the ones that clients find first."""

    base: str
    issuer: Issuer
    process: Program

    @property
    def url(self) -> str:
        return f"{self.base}/mcp"


@dataclass(slots=True)
class Parties:
    """The parts that the logins of a run share. *documents* of clients stand at the issuers, by URL."""

    folder: Path
    browser: str
    documents: dict[str, Any]
    gates: dict[str, Gate] = field(default_factory=dict)


def document_of(client: Client) -> str:
    return f"https://clients.example/{client.name}-{client.era}.json"


def documents(ports: dict[str, int]) -> dict[str, Any]:
    """Metadata of clients by their URLs; *ports* are those of their redirect addresses."""
    return {
        url: {
            "client_id": url,
            "client_name": "a client with a document",
            "application_type": "native",
            "redirect_uris": [f"http://127.0.0.1:{port}/callback"],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": "none",
        }
        for url, port in ports.items()
    }


class Session:
    """A client that logs in at *gate*, and what its issuer saw of it."""

    def __init__(self, driven: Driver, gate: Gate) -> None:
        self._driven = driven
        self._gate = gate
        self._seen = len(gate.issuer.deeds())

    async def connect(self, **order: object) -> None:
        await self._driven.do("connect", **order)

    async def use(self) -> None:
        """Lists the tools and calls one. Raises Failed."""
        listed = await self._driven.do("list")
        names = [tool["name"] for tool in listed["tools"]]
        if "new__echo" not in names:
            raise Failed(f"listed: {names}")
        called = await self._driven.do("call", name="new__echo", arguments={"text": "hello"})
        if called["result"].get("structuredContent") != {"text": "hello"}:
            raise Failed(f"called: {called}")

    def deeds(self) -> list[dict[str, Any]]:
        """The acts of the issuer since the last time this was asked."""
        found = self._gate.issuer.deeds()[self._seen :]
        self._seen += len(found)
        return found


def of_login(deeds: Sequence[dict[str, Any]], resource: str, document: str) -> list[Check]:
    """A first login: by the client's *document*, or by registration if that is empty; for *resource*."""
    codes = [deed for deed in deeds if deed["did"] == "authorization_code"]
    registered = [deed["client"] for deed in deeds if deed["did"] == "registered"]
    return [
        _check("one-code", len(codes) == 1, f"{deeds}"),
        _check("resource", all(deed["resource"] == resource for deed in codes), f"{codes}"),
        _check("registration", len(registered) == (0 if document else 1), f"{registered}"),
        _check("client", all(deed["client"] in (document, *registered) for deed in codes), f"{codes}"),
    ]


def of_recovery(deeds: Sequence[dict[str, Any]]) -> list[Check]:
    """The token that the client had was refused: it has another now."""
    kinds = [deed["did"] for deed in deeds]
    return [
        _check("new-token", bool({"authorization_code", "refresh_token"} & set(kinds)), f"{deeds}"),
        _check("no-loop", len(kinds) <= 3, f"{deeds}"),
    ]


def of_step_up(deeds: Sequence[dict[str, Any]]) -> list[Check]:
    """A token was too little for the door, and the client got one with all scopes, asking once."""
    return [_check("step-up", _given(deeds, "refresh_token") == [set(SCOPES)], f"{deeds}")]


def of_two_steps(deeds: Sequence[dict[str, Any]]) -> list[Check]:
    """The person has allowed less than was asked, then all of it."""
    return [_check("two-steps", _given(deeds) == [{NEEDED}, set(SCOPES)], f"{deeds}")]


def _given(deeds: Sequence[dict[str, Any]], *more: str) -> list[set[str]]:
    """The scopes of tokens that were given for a code, or as *more* says."""
    kinds = ("authorization_code", *more)
    return [set(deed["scope"].split()) & set(SCOPES) for deed in deeds if deed["did"] in kinds]


def _check(name: str, good: bool, message: str = "") -> Check:
    return Check(name, "SUCCESS" if good else "FAILURE", message)


async def row(client: Client, parties: Parties) -> AsyncIterator[tuple[str, list[Check]]]:
    """Yields the checks of one column after the other."""
    gate, other = parties.gates["corp"], parties.gates["other"]
    document = document_of(client)

    async def document_alone(session: Session) -> list[Check]:
        await session.connect()
        await session.use()
        return of_login(session.deeds(), gate.url, document)

    yield "document", await _with(client, parties, gate, document_alone, document=document)

    found: dict[str, list[Check]] = {}

    async def registered(session: Session) -> list[Check]:
        await session.connect()
        await session.use()
        found["registered"] = of_login(session.deeds(), gate.url, "")
        wrong = {
            "expired": gate.issuer.mint(gate.url, SCOPES, ends_in_s=-60),
            "audience": gate.issuer.mint(f"{gate.base}/mcp/registry", SCOPES),
        }
        for column, token in wrong.items():
            await session.connect(access_token=token)
            await session.use()
            found[column] = of_recovery(session.deeds())
        await session.connect(access_token=gate.issuer.mint(gate.url, SCOPES[:1]))
        await session.use()
        found["scopes"] = of_step_up(session.deeds())
        return []

    failed = await _with(client, parties, gate, registered)
    for column in ("registered", "expired", "audience", "scopes"):
        yield column, found.get(column, failed)

    async def little_at_first(session: Session) -> list[Check]:
        await session.connect()
        await session.use()
        return of_two_steps(session.deeds())

    yield "less", await _with(client, parties, gate, little_at_first, name=CAUTIOUS)

    async def at_other(session: Session) -> list[Check]:
        await session.connect()
        await session.use()
        return of_login(session.deeds(), other.url, "")

    yield "opaque", await _with(client, parties, other, at_other)


async def _with(
    client: Client,
    parties: Parties,
    gate: Gate,
    scenario: Callable[[Session], Awaitable[list[Check]]],
    *,
    document: str = "",
    name: str = "a client that registers",
) -> list[Check]:
    """Runs *scenario* with a new process of *client*, which knows no token; a failure of the client is a check."""
    port = _port_of(parties, document)
    login = {"name": name, "document": document, "port": port, "browser": parties.browser}
    env = {
        "MCP_URL": gate.url,
        "MCP_ERA": client.era,
        "MCP_LOGIN": json.dumps(login),
        "MCP_MODULES": str(modules_of(client.environment)) if client.script.endswith(".mjs") else "",
    }
    async with driver(client.command(), env, parties.folder / "stderr") as driven:
        session = Session(driven, gate)
        try:
            return await scenario(session)
        except (Failed, TimeoutError) as error:
            return [_check("use", False, f"{error!r} {session.deeds()}")]


def _port_of(parties: Parties, document: str) -> int:
    port = urlsplit(parties.documents[document]["redirect_uris"][0]).port if document else free_port()
    assert port is not None
    return port


@asynccontextmanager
async def parties(folder: Path) -> AsyncIterator[Parties]:
    """Starts both issuers and a gate for each: one whose clients find the issuer of JWTs first, and one the other."""
    at_issuers = documents({document_of(client): free_port() for client in CLIENTS})
    async with AsyncExitStack() as stack:
        corp = await stack.enter_async_context(issuer(folder, SCOPES, documents=at_issuers))
        asking = {**_ASKER, "redirect_uris": [], "response_types": [], "grant_types": []}
        other = await stack.enter_async_context(issuer(folder, SCOPES, opaque=True, clients=[asking]))
        entries: list[dict[str, Any]] = [
            {"name": "corp", "issuer": corp.url, "scopes": SCOPES},
            {"name": "other", "issuer": other.url, "scopes": SCOPES, "introspection": _ASKER},
        ]
        found = Parties(folder, stack.enter_context(_browser("ann")), at_issuers)
        for first, order in (("corp", entries), ("other", entries[::-1])):
            (own := folder / first).mkdir()
            gate = _gate(own, corp if first == "corp" else other, order)
            found.gates[first] = await stack.enter_async_context(gate)
        yield found


@asynccontextmanager
async def _gate(folder: Path, first: Issuer, entries: Sequence[dict[str, Any]]) -> AsyncIterator[Gate]:
    port = free_port()
    base = f"http://127.0.0.1:{port}"
    line = [sys.executable, "-m", "conformance.fixture", str(folder / "cancelled")]
    config = configuration(
        folder,
        [{"name": "new", "command": line}],
        server={"public_url": base},
        mcp={"face": "namespaced"},
        auth={"issuers": entries},
    )
    async with program("app", "serve", "--config", str(config), "--port", str(port)) as process:
        await process.wait_for(r"(?m)^Wicketgate is ready on (http://\S+)$")
        yield Gate(base, first, process)


@contextmanager
def _browser(person: str) -> Iterator[str]:
    """The URL of a browser in which *person* sits: ``?url=`` is opened there, and the address that it ends at is
    the answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                status, text = 200, asyncio.run(browse(parse_qs(urlsplit(self.path).query)["url"][0], person))
            except Exception as error:  # it is the client that has to tell
                status, text = 500, repr(error)
            self.send_response(status)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()
        server.server_close()


async def run(wanted: Sequence[str]) -> int:
    """*wanted*: patterns of rows, ``client/era``, ``door`` or ``accounts``."""
    expected = read_expected(yaml.safe_load(NOTES.read_text())["expected"])
    verdicts = {}
    print(_line("client", "era", *COLUMNS))
    with tempfile.TemporaryDirectory(prefix="logins-") as temporary:
        async with parties(Path(temporary)) as found:
            for client in CLIENTS:
                target = f"{client.name}/{client.era}"
                if not any(fnmatchcase(target, pattern) for pattern in wanted):
                    continue
                cells = {column: checks async for column, checks in row(client, found)}
                print(_line(client.shown, client.era, *(_cell(cells[name]) for name in COLUMNS)), flush=True)
                verdicts[target] = judge(target, cells, expected)
            if any(fnmatchcase("door", pattern) for pattern in wanted):
                gate, other = found.gates["corp"], found.gates["other"]
                checks = await Door(gate.base, gate.issuer, other.issuer, SCOPES).checks()
                print(f"\nThe door: {sum(check.good for check in checks)} of {len(checks)} checks", flush=True)
                verdicts["door"] = judge("door", {"door": checks}, expected)
        if any(fnmatchcase("accounts", pattern) for pattern in wanted):
            checks = await accounts(Path(temporary))
            print(
                f"Accounts behind the gate: {sum(check.good for check in checks)} of {len(checks)} checks", flush=True
            )
            verdicts["accounts"] = judge("accounts", {"accounts": checks}, expected)
    unexpected = [f"{target}: {what}" for target, verdict in verdicts.items() for what in verdict.unexpected]
    unneeded = stale(expected, verdicts)
    for title, lines in (("Not in the notes", unexpected), ("Stale in the notes", unneeded)):
        if lines:
            print(f"\n{title}:", *lines, sep="\n  ")
    return int(bool(unexpected or unneeded))


def _cell(checks: Sequence[Check]) -> str:
    bad = [check.id for check in checks if not check.good]
    return ",".join(bad) + "!" if bad else "ok"


def _line(*cells: str) -> str:
    widths = (24, 5, *(max(len(name), 8) for name in COLUMNS))
    return " ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m conformance.run_logins", description=__doc__)
    parser.add_argument("wanted", nargs="*", default=["*"], help="patterns of rows, such as py2/* or door")
    return exit_code(run(parser.parse_args().wanted))


if __name__ == "__main__":
    sys.exit(main())

"""The callers of the soak: at ``/mcp`` in either era and at ``/engine/chat``, each checking that an answer is its own.

They speak HTTP by hand, so that a caller can leave without a word, and nothing but the service is tried.
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from bench.soak_server import LARGE, mark

Era = Literal["2026", "handshake", "chat"]
ERAS: tuple[Era, ...] = ("2026", "handshake", "chat")

# What may come of a call while servers are killed; all of them say what happened, and none is an answer.
EXPECTED = frozenset({"UPSTREAM_ERROR", "UPSTREAM_UNAVAILABLE", "UPSTREAM_TIMEOUT", "RATE_LIMITED"})

_LEAVES = 0.05
_LARGE = 0.1
_NEW = "2026-07-28"
_OLD = "2025-11-25"


class Wrong(Exception):
    """An answer that is not the answer to this call, or not one that the contract knows."""


@dataclass
class Tally:
    """*outcomes* counts by era and by what came: ``ok``, ``left``, an error code, ``hang`` or ``wrong``."""

    outcomes: Counter[tuple[Era, str]] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    longest_s: float = 0.0
    faults: list[str] = field(default_factory=list)

    def fault(self, era: Era, kind: str, what: str) -> None:
        self.outcomes[era, kind] += 1
        if len(self.faults) < 20:
            self.faults.append(f"{era}: {kind}: {what}")
            print(f"    {self.faults[-1]}", flush=True)

    def total(self, outcome: str) -> int:
        return sum(count for (_, kind), count in self.outcomes.items() if kind == outcome)


@dataclass
class Caller:
    """*tools* are the ids of the tools by server. *bound_s*: when a call that has not ended hangs."""

    name: str
    era: Era
    http: httpx.AsyncClient
    tools: Mapping[str, str]
    tally: Tally
    bound_s: float
    pause_s: float
    chance: random.Random
    number: int = 0
    session: str = ""

    async def open(self) -> None:
        """A session of its own, where the era has them."""
        if self.era == "handshake":
            params = {"protocolVersion": _OLD, "capabilities": {}, "clientInfo": {"name": self.name, "version": "0"}}
            opened = await self._post({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params})
            self.session = opened.headers["mcp-session-id"]
            await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def close(self) -> None:
        if self.session:
            await self.http.delete("/mcp", headers={"Mcp-Session-Id": self.session, "Mcp-Protocol-Version": _OLD})

    async def live(self, stop: asyncio.Event) -> None:
        """Call after call until *stop*."""
        while not stop.is_set():
            await self.one_call()
            await asyncio.sleep(self.chance.uniform(0.5, 1.5) * self.pause_s)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self.number += 1
        message = {"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}
        return _reply(await self._post(message))

    async def one_call(self) -> None:
        self.number += 1
        server = self.chance.choice(list(self.tools))
        leaves = self.chance.random() < _LEAVES
        args = {
            "caller": self.name,
            "number": self.number,
            "pause_ms": 500 if leaves else self.chance.choice([0, 0, 40]),
        }
        if self.chance.random() < _LARGE:
            args["chars"] = LARGE
        clock = asyncio.get_running_loop().time
        began = clock()
        try:
            async with asyncio.timeout(0.1 if leaves else self.bound_s):
                outcome = await (self._chat(server, args) if self.era == "chat" else self._execute(server, args))
        except TimeoutError:
            if not leaves:
                self.tally.fault(self.era, "hang", f"{self.name} to {server}, call {self.number}, {args}")
                return
            outcome = "left"
        except Wrong as wrong:
            self.tally.fault(self.era, "wrong", f"{self.name} to {server}, call {self.number}: {wrong}")
            return
        except httpx.HTTPError as error:
            self.tally.fault(self.era, "wrong", f"{self.name} to {server}, call {self.number}: {error!r}")
            return
        took_s = clock() - began
        self.tally.outcomes[self.era, outcome] += 1
        self.tally.longest_s = max(self.tally.longest_s, took_s)
        if outcome == "ok":
            self.tally.seconds.append(took_s)

    async def _execute(self, server: str, args: Mapping[str, Any]) -> str:
        params: dict[str, Any] = {
            "name": "tool_execute",
            "arguments": {"tool_id": self.tools[server], "args": args},
        }
        if self.era == "2026":
            params["_meta"] = {
                "io.modelcontextprotocol/protocolVersion": _NEW,
                "io.modelcontextprotocol/clientInfo": {"name": self.name, "version": "0"},
                "io.modelcontextprotocol/clientCapabilities": {},
            }
        message = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        reply = _reply(await self._post(message))
        if reply.get("id") != self.number:
            raise Wrong(f"the id is another: {reply!r:.300}")
        if "result" not in reply:
            raise Wrong(f"{reply!r:.300}")
        return self._checked(server, reply["result"]["structuredContent"], args)

    async def _chat(self, server: str, args: Mapping[str, Any]) -> str:
        body = {
            "messages": [{"role": "user", "content": f"mark {server} {json.dumps(args)}"}],
            "metadata": {"correlation_id": f"{self.name}-{self.number}"},
        }
        response = await self.http.post("/engine/chat", json=body)
        if response.status_code != 200:
            raise Wrong(f"HTTP {response.status_code} {response.text:.300}")
        events = _events(response.text)
        if [name for name, _ in events if name in ("done", "error")] != ["done"] or events[-1][0] != "done":
            raise Wrong(f"the stream does not end in one done: {events[-2:]!r:.300}")
        calls = {data["id"]: data for name, data in events if name == "tool-call"}
        ours = {id for id, data in calls.items() if data["arguments"].get("tool_id") == self.tools[server]}
        results = [data for name, data in events if name == "tool-result" and data["id"] in ours]
        if not results:
            raise Wrong(f"no call of the tool: {events!r:.500}")
        return self._checked(server, json.loads(results[0].get("output") or results[0]["error"]), args)

    def _checked(self, server: str, body: Mapping[str, Any], args: Mapping[str, Any]) -> str:
        if "error" in body:
            if body["error"] not in EXPECTED or "inside the gateway" in body["message"]:
                raise Wrong(f"{body!r:.400}")
            return str(body["error"])
        expected = mark(server, args["caller"], args["number"])
        if body.get("status") != "ok" or not str(body.get("summary")).startswith(expected):
            raise Wrong(f"expected {expected}: {body!r:.400}")
        if body["provenance"]["tool_id"] != self.tools[server]:
            raise Wrong(f"from another tool: {body!r:.400}")
        return "ok"

    async def _post(self, message: Mapping[str, Any]) -> httpx.Response:
        headers = {"Accept": "application/json, text/event-stream"}
        if self.era == "2026":
            headers |= {"Mcp-Protocol-Version": _NEW, "Mcp-Method": "tools/call", "Mcp-Name": "tool_execute"}
        else:
            headers["Mcp-Protocol-Version"] = _OLD
            if self.session:
                headers["Mcp-Session-Id"] = self.session
        response = await self.http.post("/mcp?result=both", json=message, headers=headers)
        if response.status_code >= 300:
            raise Wrong(f"HTTP {response.status_code} {response.text:.300}")
        return response


def _reply(response: httpx.Response) -> dict[str, Any]:
    if response.headers["content-type"].startswith("application/json"):
        found: dict[str, Any] = response.json()
        return found
    replies = [data for _, data in _events(response.text) if "id" in data]
    if len(replies) != 1:
        raise Wrong(f"not one reply: {response.text:.300}")
    return replies[0]


def _events(text: str) -> Sequence[tuple[str, dict[str, Any]]]:
    found = []
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and not line.startswith(":"))
        if fields.get("data", "").startswith("{"):
            found.append((fields.get("event", ""), json.loads(fields["data"])))
    return found

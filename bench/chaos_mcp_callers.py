"""The callers of ``make chaos`` at ``/mcp``: in both eras, with and without questions to the person behind them.

They speak HTTP by hand, so that nothing is retried behind their back.
"""

import asyncio
import json
import random
from collections.abc import Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any

import httpx

from bench.chaos_callers import Caller, Chatting, Ended, Load, Returning, events_of, must_be_ok
from bench.chaos_judge import Door, Outcome, outcome_of_call
from bench.chaos_story import PERSON

NEW, OLD = "2026-07-28", "2025-11-25"
_ATTEMPTS = 30
"""Of a second attempt, while the answer is that the call cannot be reached now."""


class Stateless(Caller):
    """Calls of the era without sessions."""

    door: Door = "/mcp 2026"
    capabilities: Mapping[str, Any] = {}
    tool = "charge"

    def effect(self) -> bool:
        return self.tool != "look"

    async def one(self) -> tuple[Outcome, str]:
        self.tool = "charge" if self.chance.random() < 0.6 else "look"
        return outcome_of_call(self.tool, self.number, await self.execute(), self.breach)

    async def execute(self, **more: Any) -> Mapping[str, Any]:
        arguments = {"tool_id": self.load.tools[self.tool], "args": {"number": self.number}}
        params = {
            "name": "tool_execute",
            "arguments": arguments,
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": NEW,
                "io.modelcontextprotocol/clientInfo": {"name": "chaos", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": dict(self.capabilities),
            },
            **more,
        }
        headers = {"MCP-Protocol-Version": NEW, "Mcp-Method": "tools/call", "Mcp-Name": "tool_execute"}
        message = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        async with _post(self.http, message, headers) as answer:
            await must_be_ok(answer)
            return await _reply(answer, self.number)


class AskedStateless(Stateless):
    """Calls whose tool asks: the second attempt, with the answer, goes to whichever replica is next."""

    door: Door = "question 2026"
    capabilities: Mapping[str, Any] = {"elicitation": {"form": {}}}
    tool = "sign"

    async def one(self) -> tuple[Outcome, str]:
        first = await self.execute()
        asked = first.get("result") or {}
        if asked.get("resultType") != "input_required":
            return _unasked(first) or outcome_of_call(self.tool, self.number, first, self.breach)
        await asyncio.sleep(self.chance.uniform(0, 0.4))
        given = {key: {"action": "accept", "content": {"name": PERSON}} for key in asked["inputRequests"]}
        for _ in range(_ATTEMPTS):
            try:
                second = await self.execute(requestState=asked["requestState"], inputResponses=given)
            except Ended as ended:
                if "-32602" in ended.why:
                    self.breach("false 404", f"the second attempt of {self.number}: {ended.why}")
                raise
            if not second.get("error", {}).get("data", {}).get("retryable"):
                break
            await asyncio.sleep(1)
        if _was_unasked(second):
            # The end of the drain of its home is an answer that nobody gave. Nothing took place.
            return "unheard", "the home of the call ended before the answer was there"
        return outcome_of_call(self.tool, self.number, second, self.breach)


class InSession(Caller):
    """Calls in a session of the handshake era, with a stream that listens."""

    door: Door = "/mcp session"
    capabilities: Mapping[str, Any] = {}
    tool = "charge"

    def __init__(self, load: Load, key: str, chance: random.Random, pause_s: float) -> None:
        super().__init__(load, key, chance, pause_s)
        self.session = ""
        self.opened_s = 0.0
        self.asked = 0
        """The number of the last call whose question came here."""
        self._listening: asyncio.Task[None] | None = None

    def effect(self) -> bool:
        return self.tool != "look"

    async def one(self) -> tuple[Outcome, str]:
        if not self.session:
            await self._open()
        self.tool = self.pick()
        arguments = {"tool_id": self.load.tools[self.tool], "args": {"number": self.number}}
        params = {"name": "tool_execute", "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": self.number, "method": "tools/call", "params": params}
        async with _post(self.http, message, self._headers()) as answer:
            await self._must_know(answer, f"call {self.number}")
            await must_be_ok(answer)
            reply = await _reply(answer, self.number, self.ask)
            if self.asked != self.number and (unasked := _unasked(reply)):
                return unasked
            return outcome_of_call(self.tool, self.number, reply, self.breach)

    def known_since(self, began_s: float) -> float:
        return self.opened_s if self.session else began_s

    def pick(self) -> str:
        return "charge" if self.chance.random() < 0.6 else "look"

    async def ask(self, question: Mapping[str, Any]) -> None:
        """A request of the server, before the reply."""

    async def leave(self) -> None:
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
        if self.session:
            with suppress(httpx.HTTPError):
                await self.http.delete("/mcp", headers=self._headers())

    async def _open(self) -> None:
        client = {"name": "chaos", "version": "1"}
        params = {"protocolVersion": OLD, "capabilities": dict(self.capabilities), "clientInfo": client}
        message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        async with _post(self.http, message, {"MCP-Protocol-Version": OLD}) as opened:
            await must_be_ok(opened)
            session = opened.headers["mcp-session-id"]
            await _reply(opened, 0)
        self.session, self.opened_s = session, self.load.now_s()
        initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        async with _post(self.http, initialized, self._headers()) as answer:
            await self._must_know(answer, "notifications/initialized")
            await must_be_ok(answer)
        if self._listening is not None:
            self._listening.cancel()
        self._listening = asyncio.create_task(self._listen(session))

    async def _listen(self, session: str) -> None:
        """Keeps a stream of notifications open while the session is the one in use."""
        headers = {**self._headers(), "Accept": "text/event-stream"}
        while self.session == session:
            with suppress(httpx.HTTPError):
                async with self.http.stream("GET", "/mcp", headers=headers, timeout=None) as answer:
                    if answer.status_code == 404 and self.session == session:
                        self.breach("false 404", "GET of a session that nobody ended")
                        self.session = ""
                        return
                    async for _ in answer.aiter_bytes():
                        pass
            await asyncio.sleep(self.chance.uniform(0.2, 1.0))

    async def _must_know(self, answer: httpx.Response, what: str) -> None:
        if answer.status_code == 404 and self.session:
            self.session = ""
            self.breach("false 404", f"{what} in a session that nobody ended")
            raise Ended("refused", "404")

    def _headers(self) -> dict[str, str]:
        return {"MCP-Protocol-Version": OLD, "Mcp-Session-Id": self.session}


class AskedInSession(InSession):
    """Calls whose tool asks while it runs; the answer is a POST of its own, to whichever replica is next."""

    door: Door = "question session"
    capabilities: Mapping[str, Any] = {"elicitation": {}}

    def pick(self) -> str:
        return "sign"

    async def ask(self, question: Mapping[str, Any]) -> None:
        self.asked = self.number
        await asyncio.sleep(self.chance.uniform(0, 0.4))
        result = {"action": "accept", "content": {"name": PERSON}}
        message = {"jsonrpc": "2.0", "id": question["id"], "result": result}
        # An answer that may not have arrived is sent again, as the gate asks.
        for _ in range(_ATTEMPTS):
            async with _post(self.http, message, self._headers()) as answer:
                await self._must_know(answer, f"answer of {self.number}")
                if answer.status_code != 503:
                    return await must_be_ok(answer)
            await asyncio.sleep(self.chance.uniform(0.5, 1.0))
        raise Ended("cut", "the answer was not taken")


KINDS: Mapping[Door, type[Caller]] = {
    kind.door: kind for kind in (Returning, Chatting, Stateless, InSession, AskedStateless, AskedInSession)
}


def _unasked(reply: Mapping[str, Any]) -> tuple[Outcome, str] | None:
    """The outcome of a call whose tool was told that nobody could be asked; otherwise None."""
    return ("refused", "nobody was asked") if _was_unasked(reply) else None


def _was_unasked(reply: Mapping[str, Any]) -> bool:
    return "nobody signed" in f"{reply}"


def _post(http: httpx.AsyncClient, message: Mapping[str, Any], headers: Mapping[str, str]) -> Any:
    accept = {"Accept": "application/json, text/event-stream"}
    return http.stream("POST", "/mcp?result=both", json=message, headers={**accept, **headers})


async def _reply(
    answer: httpx.Response, number: int, ask: Callable[[Mapping[str, Any]], Any] | None = None
) -> Mapping[str, Any]:
    """The message that answers request *number*. Raises Ended when the stream ends without one."""
    if answer.headers.get("content-type", "").startswith("application/json"):
        found: Mapping[str, Any] = json.loads(await answer.aread())
        return found
    async with aclosing(events_of(answer)) as stream:
        async for _, _, data in stream:
            if "method" in data and "id" in data and ask is not None:
                await ask(data)
            elif data.get("id") == number:
                return data
    raise Ended("cut", "the stream ended without a reply")

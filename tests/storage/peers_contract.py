"""The contract that every way between peers keeps (OPS-197, OPS-198).

It is tested by a class that inherits this one, beside a fixture ``make`` that makes the peers of one service.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.log_text import correlation_id
from wicketgate.peers import (
    Answers,
    AsgiMessage,
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    NotReached,
    Others,
    Peers,
    ask_others,
)

BOUND_S = 30.0
Make = Callable[[], Peers]
LARGE = os.urandom(3_000_000)
SCOPE: AsgiScope = {
    "type": "http",
    "http_version": "1.1",
    "method": "POST",
    "scheme": "http",
    "path": "/mcp",
    "raw_path": b"/mcp",
    "query_string": b"",
    "root_path": "",
    "headers": [(b"authorization", b"Bearer x")],
    "client": ("127.0.0.1", 7),
    "server": ("127.0.0.1", 80),
    "state": {"identity": "of the asker"},
}


async def shout(payload: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"said": payload["say"] * 2}


@asynccontextmanager
async def two(make: Make) -> AsyncIterator[tuple[Peers, Peers]]:
    one, other = make(), make()
    async with one.answering(), other.answering():
        yield one, other


class Client:
    """A client that sends *parts*, and stays until ``leave``."""

    def __init__(self, *parts: bytes) -> None:
        last = len(parts) - 1
        self._parts = [{"type": "http.request", "body": p, "more_body": at < last} for at, p in enumerate(parts)]
        self.leave = asyncio.Event()
        self.got: list[AsgiMessage] = []
        self.news = asyncio.Event()
        self.reads = asyncio.Event()
        self.reads.set()

    async def receive(self) -> AsgiMessage:
        if self._parts:
            return self._parts.pop(0)
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: AsgiMessage) -> None:
        await self.reads.wait()
        self.got.append(message)
        self.news.set()

    @property
    def body(self) -> bytes:
        return b"".join(each.get("body", b"") for each in self.got[1:])


async def outlives_its_asker(one: Peers, other: Peers, lose: Callable[[], None]) -> None:
    """An answer goes on that outlives its asker, when *lose* takes that away without a word; no other does."""
    go, begun, ended = asyncio.Event(), asyncio.Queue[str](), asyncio.Queue[tuple[str, bool]]()

    def wait(name: str) -> Callable[[Mapping[str, Any]], Any]:
        async def answer(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            begun.put_nowait(name)
            try:
                await go.wait()
            finally:
                ended.put_nowait((name, go.is_set()))
            return {}

        return answer

    other.answer("stays", wait("stays"), outlives=True)
    other.answer("ends", wait("ends"))
    async with one.answering(), other.answering(), asyncio.timeout(BOUND_S):
        asking = [asyncio.create_task(one.ask(other.own_id, name, {}, BOUND_S)) for name in ("stays", "ends")]
        assert {await begun.get(), await begun.get()} == {"stays", "ends"}
        lose()
        assert await ended.get() == ("ends", False)
        go.set()
        assert await ended.get() == ("stays", True)
        for each in asking:
            each.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        # One that leaves ends it all the same.
        go.clear()
        leaving = asyncio.create_task(one.ask(other.own_id, "stays", {}, BOUND_S))
        await begun.get()
        leaving.cancel()
        assert await ended.get() == ("stays", False)


class PeersContract:
    @requirement("OPS-290")
    async def test_the_others_are_known_and_asked_at_once(self, make: Make) -> None:
        one, other, third = make(), make(), make()
        for each in (one, other, third):
            each.answer("shout", shout)
        async with one.answering():
            assert await one.others() == Others()
            assert await ask_others(one, "shout", {"say": "x"}) == Answers()
            async with other.answering(), third.answering():
                assert set((await one.others()).there) == {other.own_id, third.own_id}
                assert set((await third.others()).there) == {other.own_id, one.own_id}
                answers = await ask_others(one, "shout", {"say": "x"})
                assert answers == Answers({other.own_id: {"said": "xx"}, third.own_id: {"said": "xx"}})
                # One that answers nothing is counted, and keeps nothing of the others back.
                assert (await ask_others(one, "unknown", {})).unreached == 2
            assert await one.others() == Others()

    @requirement("OPS-197", "OPS-198")
    async def test_a_peer_answers_what_it_is_asked(self, make: Make) -> None:
        one, other = make(), make()
        other.answer("shout", shout)
        one.answer("shout", shout)
        async with one.answering(), other.answering():
            assert one.own_id != other.own_id
            assert await one.ask(other.own_id, "shout", {"say": "ho"}) == {"said": "hoho"}
            assert await one.ask(one.own_id, "shout", {"say": "he"}) == {"said": "hehe"}
            large = await one.ask(other.own_id, "shout", {"say": LARGE}, BOUND_S)
            answers = await asyncio.gather(
                *(one.ask(other.own_id, "shout", {"say": f"{at} "}, BOUND_S) for at in range(100))
            )
            assert await one.alive(other.own_id)
            assert await one.alive(one.own_id)
        assert large["said"] == LARGE * 2
        assert [each["said"] for each in answers] == [f"{at} " * 2 for at in range(100)]

    @requirement("OPS-198")
    async def test_what_a_peer_does_not_answer_is_not_reached_and_it_lives(self, make: Make) -> None:
        one, other = make(), make()
        begun, cancelled = asyncio.Event(), asyncio.Event()

        async def fail(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            raise RuntimeError("secret")

        async def hang(payload: Mapping[str, Any]) -> Mapping[str, Any]:
            begun.set()
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()
            return {}

        other.answer("fail", fail)
        other.answer("hang", hang)
        async with one.answering(), other.answering():
            for operation in ("fail", "unknown"):
                with pytest.raises(NotReached) as failed:
                    await one.ask(other.own_id, operation, {})
                assert not failed.value.gone
            with pytest.raises(NotReached) as late:
                await one.ask(other.own_id, "hang", {}, 0.3)
            assert not late.value.gone
            async with asyncio.timeout(BOUND_S):
                await cancelled.wait()
            begun.clear()
            cancelled.clear()
            asking = asyncio.create_task(one.ask(other.own_id, "hang", {}, BOUND_S))
            async with asyncio.timeout(BOUND_S):
                await begun.wait()
                asking.cancel()
                await cancelled.wait()

    @requirement("OPS-198")
    async def test_a_peer_that_has_ended_is_gone(self, make: Make) -> None:
        one, other = make(), make()
        other.answer("shout", shout)
        async with one.answering():
            async with other.answering():
                assert await one.alive(other.own_id)
            with pytest.raises(NotReached) as gone:
                await one.ask(other.own_id, "shout", {"say": "x"})
            assert gone.value.gone
            assert not await one.alive(other.own_id)
            for never in ("", "0123456789abcdef", "9-0123456789abcdef", "0-0123456789abcdef", "../x", "{x}:y"):
                with pytest.raises(NotReached) as unknown:
                    await one.ask(never, "shout", {"say": "x"})
                assert unknown.value.gone, never

    @requirement("OPS-198")
    async def test_a_forwarded_request_is_answered_in_a_stream_both_ways(self, make: Make) -> None:
        one, other = make(), make()
        seen = dict[str, Any]()

        async def app(scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
            seen.update(scope, correlation=correlation_id.get())
            await send({"type": "http.response.start", "status": 201, "headers": [(b"x", b"y")]})
            more = True
            while more:
                message = await receive()
                more = message["more_body"]
                await send({"type": "http.response.body", "body": message["body"], "more_body": more})

        other.answer_with(app)
        token = correlation_id.set("req_7")
        client = Client(b"a" * 100_000, b"b", LARGE, b"")
        try:
            async with one.answering(), other.answering(), asyncio.timeout(BOUND_S):
                await one.forward(other.own_id, SCOPE, client.receive, client.send)
        finally:
            correlation_id.reset(token)
        assert client.got[0]["status"] == 201
        assert client.body == b"a" * 100_000 + b"b" + LARGE
        assert seen["headers"] == SCOPE["headers"]
        # The peer authenticates the client by itself.
        assert (seen["state"], seen["correlation"]) == ({"correlation_id": "req_7"}, "req_7")

    @requirement("OPS-198")
    async def test_a_client_that_leaves_is_missed_at_the_peer_and_a_slow_one_holds_it_up(self, make: Make) -> None:
        one, other = make(), make()
        sent = 0
        left, stuck = asyncio.Event(), asyncio.Event()

        async def app(scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
            nonlocal sent
            await send({"type": "http.response.start", "status": 200, "headers": []})

            async def stream() -> None:
                nonlocal sent
                while True:
                    with suppress(TimeoutError):
                        async with asyncio.timeout(1.0):
                            await send({"type": "http.response.body", "body": b"x" * 60_000, "more_body": True})
                            sent += 1
                            continue
                    stuck.set()
                    return

            streaming = asyncio.create_task(stream())
            while (await receive())["type"] != "http.disconnect":
                pass
            streaming.cancel()
            left.set()

        other.answer_with(app)
        client = Client(b"")
        client.reads.clear()
        async with one.answering(), other.answering(), asyncio.timeout(BOUND_S):
            forwarding = asyncio.create_task(one.forward(other.own_id, SCOPE, client.receive, client.send))
            await stuck.wait()
            assert sent < 200, "what nobody reads is not piled up"
            client.reads.set()
            client.leave.set()
            await left.wait()
            await forwarding

    @requirement("OPS-198")
    async def test_an_answer_whose_peer_ends_is_broken_off(self, make: Make) -> None:
        one, other = make(), make()
        waits = asyncio.Event()

        async def app(scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
            if scope["path"] == "/begun":
                await send({"type": "http.response.start", "status": 200, "headers": []})
            waits.set()
            await asyncio.Event().wait()

        other.answer_with(app)
        for path in ("/begun", "/silent"):
            client = Client(b"")
            waits.clear()
            async with one.answering(), asyncio.timeout(BOUND_S):
                async with other.answering():
                    scope = {**SCOPE, "path": path}
                    forwarding = asyncio.create_task(one.forward(other.own_id, scope, client.receive, client.send))
                    await waits.wait()
                    if path == "/begun":
                        await client.news.wait()
                if path == "/begun":
                    with pytest.raises(ConnectionError):
                        await forwarding
                else:
                    await forwarding
                    assert client.got[0]["status"] == 502, "it may have run: no proxy may repeat it"
                with pytest.raises(NotReached) as gone:
                    await one.forward(other.own_id, SCOPE, Client(b"").receive, Client(b"").send)
                assert gone.value.gone

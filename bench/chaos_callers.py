"""The callers of ``make chaos``, and those of chats; ``chaos_mcp_callers`` has the others.

Each goes through the proxy as a client would, and checks what it gets.

A chat with a key comes back with ``Last-Event-ID`` until its run has an end; nothing else is ever sent twice.
"""

import asyncio
import itertools
import json
import random
import time
from collections.abc import AsyncGenerator, Collection, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

import httpx

from bench.chaos_judge import Door, Fault, Ledger, Outcome, Reading, Told, outcome_of_chat
from bench.chaos_story import charges

BOUND_S = 90.0
"""The time after which a call or chat is said to have no answer: longer than any fault lasts."""
_READ_S = 45.0
_LONG_SILENCE_S = 25.0
"""Longer ones are told."""
_FROM_THE_BEGINNING = 0.15
"""Part of all returns that come without Last-Event-ID, and get every event again."""


class Ended(Exception):
    """The end of an exchange that is no answer."""

    def __init__(self, outcome: Outcome, why: str) -> None:
        super().__init__(why)
        self.outcome: Outcome = outcome
        self.why = why


@dataclass
class Load:
    """The common state of all callers: one row of numbers, the ledger, the clock."""

    ledger: Ledger
    url: str
    tools: Mapping[str, str]
    began: float = field(default_factory=time.monotonic)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def now_s(self) -> float:
        return time.monotonic() - self.began

    async def answers(self, count: int, doors: Collection[Door] = ()) -> None:
        """Wait for so many further good answers, at each of *doors* if they are given. Raises TimeoutError."""
        wanted = {door: self._good(door) + count for door in doors or (None,)}
        async with asyncio.timeout(BOUND_S):
            while any(self._good(door) < number for door, number in wanted.items()):  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def _good(self, door: Door | None) -> int:
        return sum(one.outcome == "ok" and door in (None, one.door) for one in self.ledger.told)

    def breach(self, fault: Fault, line: str) -> None:
        self.ledger.breaches.append((fault, line))
        print(f"    {self.now_s():6.1f} s  {fault}: {line}", flush=True)


class Caller:
    """One client with a key of its own. Subclasses make one call after the other."""

    door: Door

    def __init__(self, load: Load, key: str, chance: random.Random, pause_s: float) -> None:
        self.load = load
        self.chance = chance
        self.pause_s = pause_s
        self.number = 0
        self.since_s = 0.0
        """Since when the store has known of what this call needs of it."""
        limits = httpx.Limits(max_keepalive_connections=4, keepalive_expiry=5)
        self.http = httpx.AsyncClient(
            base_url=load.url,
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(_READ_S, connect=5),
            trust_env=False,
            verify=False,
            limits=limits,
        )

    async def live(self, stop: asyncio.Event) -> None:
        """Call after call until *stop*; the last one is finished."""
        async with self.http:
            try:
                while not stop.is_set():
                    await self._one()
                    await asyncio.sleep(self.chance.uniform(0.5, 1.5) * self.pause_s)
            finally:
                await self.leave()

    async def one(self) -> tuple[Outcome, str]:
        raise NotImplementedError

    async def leave(self) -> None:
        """Give up what the caller holds."""

    def effect(self) -> bool:
        return True

    def known_since(self, began_s: float) -> float:
        """Returns the beginning of a call at *began_s*, or of the session that it is made in."""
        return began_s

    def breach(self, fault: Fault, line: str) -> None:
        """Of what Redis has forgotten since *since_s*, it is noted as excused."""
        if self.load.ledger.lost(self.since_s, self.load.now_s()):
            self.load.ledger.excused.append(f"{fault}: {self.door}: {line}")
        else:
            self.load.breach(fault, f"{self.door}: {line}")

    async def _one(self) -> None:
        self.number = next(self.load.numbers)
        began_s = self.load.now_s()
        self.since_s = self.known_since(began_s)
        try:
            async with asyncio.timeout(BOUND_S):
                outcome, why = await self.one()
        except Ended as ended:
            outcome, why = ended.outcome, ended.why
        except TimeoutError:
            self.breach("no answer", f"{self.number} has no end after {BOUND_S:g} s")
            outcome, why = "failed", "no end"
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            outcome, why = "unreached", repr(error)
            await asyncio.sleep(0.2)
        except httpx.TimeoutException as error:
            self.breach("no answer", f"{self.number}: {error!r}")
            outcome, why = "failed", repr(error)
        except httpx.HTTPError as error:
            outcome, why = "cut", repr(error)
        now_s = self.load.now_s()
        self.load.ledger.told.append(
            Told(self.door, self.number, outcome, now_s, now_s - began_s, self.effect(), why[:300])
        )


class Chatting(Caller):
    """Chats without a key: what breaks is over."""

    door: Door = "chat"

    def effect(self) -> bool:
        return charges(self.number)

    async def one(self) -> tuple[Outcome, str]:
        events = []
        async with self.http.stream("POST", "/engine/chat", json=chat(self.number)) as answer:
            await must_be_ok(answer)
            async with aclosing(events_of(answer)) as stream:
                async for _, name, data in stream:
                    events.append((name, data))
        if not events or events[-1][0] not in ("done", "error"):
            self.breach("events lost", f"{self.number} ended without an end: {events[-1:]!r:.200}")
            return "failed", "no end"
        return outcome_of_chat(self.number, events, self.breach)


class Returning(Caller):
    """Chats with an Idempotency-Key: whatever breaks, the client comes back until its run has an end."""

    door: Door = "chat, key"

    def effect(self) -> bool:
        return charges(self.number)

    async def one(self) -> tuple[Outcome, str]:
        reading = Reading(self.number)
        try:
            return await self._read(reading)
        finally:
            for fault, line in reading.breaches:
                self.breach(fault, line)

    async def _read(self, reading: Reading) -> tuple[Outcome, str]:
        """Come back until the run has an end."""
        seen_at, tries, first = time.monotonic(), 0, True
        while not reading.ended:
            tries += 1
            if not first:
                self.load.ledger.came_back += 1
            again = reading.last > 0 and self.chance.random() < _FROM_THE_BEGINNING
            headers = {"Idempotency-Key": f"chaos-{self.number}"}
            if reading.last and not again:
                headers["Last-Event-ID"] = reading.last_event_id
            try:
                async with self.http.stream("POST", "/engine/chat", json=chat(self.number), headers=headers) as answer:
                    await must_be_ok(answer)
                    first = False
                    async with aclosing(events_of(answer)) as stream:
                        async for event_id, name, data in stream:
                            reading.add(event_id, name, data, again)
                            seen_at = self._heard(reading, seen_at)
            except Ended as ended:
                if ended.outcome not in ("refused", "cut"):
                    self.breach("events lost", f"{self.number} after event {reading.last}: {ended.why}")
                    return "failed", ended.why
                # Told to come back. A run that never began is not waited for for ever, as a person would not.
                if not reading.last and first and tries > 5:
                    return ended.outcome, ended.why
                await asyncio.sleep(self.chance.uniform(0.5, 1.0))
            except httpx.HTTPError:
                pass
            if not reading.ended:
                await asyncio.sleep(self.chance.uniform(0.05, 0.3))
        return reading.outcome()

    def _heard(self, reading: Reading, before: float) -> float:
        now = time.monotonic()
        self.load.ledger.silence_s = max(self.load.ledger.silence_s, now - before)
        if now - before > _LONG_SILENCE_S:
            print(
                f"    {self.load.now_s():6.1f} s  chat {self.number}: silent for {now - before:.1f} s before "
                f"event {reading.last} of {reading.run}",
                flush=True,
            )
        return now


def chat(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": str(number)}], "metadata": {"correlation_id": f"n{number}"}}


async def must_be_ok(answer: httpx.Response) -> None:
    """Raises Ended for anything but 2xx, by what the status says of the request."""
    if answer.status_code < 300:
        return
    text = f"{answer.status_code} {(await answer.aread()).decode(errors='replace')[:200]}"
    match answer.status_code:
        case 429 | 503:
            raise Ended("refused", text)
        case 502 | 504:
            raise Ended("cut", text)
    raise Ended("failed", text)


async def events_of(answer: httpx.Response) -> AsyncGenerator[tuple[str, str, Mapping[str, Any]], None]:
    """Each whole event as id, name and data."""
    rest = ""
    async for piece in answer.aiter_text():
        rest = (rest + piece).replace("\r\n", "\n")
        *blocks, rest = rest.split("\n\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\n") if ": " in line and line[0] != ":")
            if fields.get("data", "").startswith("{"):
                yield fields.get("id", ""), fields.get("event", ""), json.loads(fields["data"])

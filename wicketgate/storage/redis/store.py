"""The ``Store`` of the processes that share a Redis: ``store_scripts`` over the lanes of a ``RedisLink``."""

import logging
import secrets
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from itertools import count
from math import ceil
from typing import Any

import msgspec

from wicketgate.storage.core import DamagedRow
from wicketgate.storage.redis.client import PREFIX, DamagedKeys, RedisLink
from wicketgate.storage.redis.lanes import Step
from wicketgate.storage.redis.store_scripts import ALIVE, BEAT, COUNT, HELD, PLACES, STEP
from wicketgate.storage.redis.store_signals import RedisSignals
from wicketgate.storage.store import (
    LAPSED,
    LISTED,
    MARK_S,
    Append,
    Beat,
    Changed,
    Conflict,
    Drop,
    Fence,
    Full,
    Grant,
    Kind,
    Op,
    Put,
    Refused,
    Row,
    Signal,
    Take,
    Window,
    Wish,
)

log = logging.getLogger("wicketgate.storage")

LARGE_BYTES = 64 * 1024
"""Data above this length is a value of its own, which a row names: Lua would copy it twice."""
_UNLINKED_S = 60
"""The life of a value that no row names yet."""
_READS_AT_ONCE = 500
_FIELDS = ("v", "o", "h", "t", "n0", "n1", "l", "d")


class RedisStore:
    """Implements Store. For use from one event loop only."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._signals = RedisSignals(link)
        self._ids: Iterator[str] = (f"{secrets.token_hex(6)}.{number}" for number in count())

    async def get(self, kind: Kind, key: str) -> Row | None:
        (row,) = await self._rows(kind, [key])
        if isinstance(row, DamagedRow):
            raise row
        return row

    async def of_owner(self, kind: Kind, owner: str | None, most: int = LISTED) -> Sequence[Row]:
        index = self._index(kind)
        owners = [owner]
        if owner is None:
            (found,) = await self._read(kind, "*", [("ZRANGE", [f"{index}o"], [0, -1])])
            owners = [each.decode() for each in found]
        steps: list[Step] = [("ZRANGE", [f"{index}u:{each}"], [0, -1, "WITHSCORES"]) for each in owners]
        by_write: list[tuple[float, str]] = []
        for found in await self._read(kind, "*", steps):
            for k, written in zip(found[::2], found[1::2], strict=True):
                by_write.append((float(written) % HELD, k.decode().partition(":")[2]))
        keys, rows, at = [key for _, key in sorted(by_write)], list[Row](), 0
        while len(rows) < most and at < len(keys):  # the index may have expired rows
            some = keys[at : at + min(_READS_AT_ONCE, most - len(rows))]
            at += len(some)
            rows += [row for row in await self._rows(kind, some) if isinstance(row, Row)]
        return rows

    async def read_log(self, kind: Kind, key: str, log: int, after: int, most: int = 64) -> Sequence[tuple[int, bytes]]:
        name = f"{PREFIX}l{log}:{kind.name}:{key}"
        (found,) = await self._read(kind, key, [("XRANGE", [name], [f"{after + 1}-0", "+", "COUNT", most])])
        try:
            entries = [(int(id.partition(b"-")[0]), entry[b"e"]) for id, entry in found]
            if any(position != entries[0][0] + number for number, (position, _) in enumerate(entries)):
                raise ValueError("an entry is missing")
        except (ValueError, KeyError) as error:
            raise self._damaged(kind.name, key, error) from None
        return entries

    async def step(self, ops: Sequence[Op], *, fence: Fence | None = None, durable: bool = False) -> Sequence[int]:
        steps, blobs = list[Step](), list[bytes]()
        asked: dict[str, Any] = {"id": next(self._ids), "ops": [self._packed(op, steps, blobs) for op in ops]}
        if fence is not None:
            asked["fence"] = f"{fence.kind.name}:{fence.key}", fence.holder, fence.term
        steps.append((STEP, [PREFIX], [msgspec.json.encode(asked), *blobs]))
        *_, done = await self._run(steps, durable=durable)
        rows = [(op.kind.name, op.key) for op in ops if not isinstance(op, Signal)]
        self._sound(done, *(rows[0] if len(rows) == 1 else ("one of", rows)))
        if done[0] == 0:
            raise Conflict(done[1])
        if done[0] < 0:
            raise Full("owner" if done[0] == -1 else "all")
        return list(done[1:])

    async def beat(self, process: str, *, mark_s: float = MARK_S) -> Beat:
        beat: Step = BEAT, [PREFIX], [process, _ms(mark_s) if mark_s else 0, LAPSED]
        (answer,) = await self._run([beat])
        lost, *found = self._sound(answer, "marks", process)
        lapsed: dict[str, list[str]] = {}
        for each in found:
            kind, _, key = each.decode().partition(":")
            if kind:
                lapsed.setdefault(kind, []).append(key)
            else:
                self._damaged("rows of process", key, f"h:{key} is not readable")
        return Beat(lapsed, bool(lost))

    async def alive(self, process: str) -> bool:
        (alive,) = await self._run([(ALIVE, [PREFIX], [process])])
        return bool(self._sound(alive, "marks", process))

    async def count(self, windows: Sequence[Window], *, peek: bool = False) -> Refused | None:
        keys = [PREFIX, *(f"{PREFIX}w:{window.key}" for window in windows)]
        arguments: list[Any] = [int(peek)]
        for window in windows:
            arguments += [window.limit, window.seconds * 1_000]
        (answer,) = await self._run([(COUNT, keys, arguments)])
        found = self._sound(answer, "windows", [window.key for window in windows])
        return Refused(found[0], float(found[1]) / 1_000) if found else None

    async def places(self, kind: str, process: str, limit: int, wishes: Sequence[Wish]) -> Sequence[Grant]:
        arguments: list[Any] = [process, limit]
        for wish in wishes:
            arguments += [f"p:{kind}:{wish.actor}", wish.held, wish.wanted]
        (answer,) = await self._run([(PLACES, [PREFIX], arguments)])
        found = self._sound(answer, "places", kind)
        for wish, elsewhere in zip(wishes, found[1::2], strict=True):
            if elsewhere < 0:
                self._damaged("places", f"{kind}:{wish.actor}", "nothing is granted")
        return [Grant(granted, max(elsewhere, 0)) for granted, elsewhere in zip(found[::2], found[1::2], strict=True)]

    def listen(self, topic: str) -> AbstractAsyncContextManager[Changed]:
        return self._signals.listen(topic)

    async def aclose(self) -> None:
        await self._signals.aclose()

    def _index(self, kind: Kind) -> str:
        return f"{PREFIX}i:{kind.name}:"

    def _packed(self, op: Op, before: list[Step], blobs: list[bytes]) -> dict[str, Any]:
        """Adds a large value to the steps *before*, and other data to *blobs*."""
        if isinstance(op, Signal):
            return {"op": "signal", "topic": op.topic}
        packed: dict[str, Any] = {"k": f"{op.kind.name}:{op.key}"}
        if op.kind.bounded or op.kind.listed:
            packed["x"] = self._index(op.kind)
            packed["gives"] = op.kind.gives
        match op:
            case Put():
                kind = op.kind
                packed |= {"op": "put", "o": op.owner, "expect": op.expect, "h": op.holder}
                packed["s"] = len(op.data) if op.size is None and op.data is not None else op.size
                packed["life"] = None if op.life_s is None else _ms(op.life_s)
                if kind.bounded:
                    packed["bounds"] = kind.most_bytes, kind.most_rows, kind.owner_bytes, kind.owner_rows
                if op.data is not None and len(op.data) > LARGE_BYTES:
                    name = packed["l"] = secrets.token_hex(16)
                    # NX: one that is linked already, by a pipeline that redis-py repeats, keeps its life.
                    before.append(("SET", [f"{PREFIX}v:{name}"], [op.data, "EX", _UNLINKED_S, "NX"]))
                elif op.data is not None:
                    blobs.append(op.data)
                    packed["d"] = len(blobs) + 1
            case Append():
                first = len(blobs) + 2
                blobs += op.entries
                entries = list(range(first, len(blobs) + 2))
                packed |= {"op": "append", "log": op.log, "at": op.at, "entries": entries, "cut": op.cut}
            case Take():
                packed |= {"op": "take", "by": op.by}
            case Drop():
                packed |= {"op": "drop", "expect": op.expect}
        return {name: value for name, value in packed.items() if value is not None}

    async def _rows(self, kind: Kind, keys: Sequence[str]) -> Sequence[Row | DamagedRow | None]:
        found = iter(await self._run([step for key in keys for step in self._reading(kind, key)]))
        rows: list[Row | DamagedRow | None] = []
        for key, fields, life in zip(keys, found, found, strict=False):
            try:
                rows.append(await self._row(kind, key, self._sound(fields, kind, key), life))
            except DamagedRow as damaged:
                rows.append(damaged)
        return rows

    async def _row(self, kind: Kind, key: str, fields: Any, life: int) -> Row | None:
        data, missing = fields[-1], None
        # A step may replace a large value before it is read. Then the row has another link.
        while (link := fields[-2]) is not None and link != missing:
            (data,) = await self._read(kind, key, [("GET", [f"{PREFIX}v:{link.decode()}"], [])])
            if data is not None:
                break
            missing = link
            fields, life = await self._read(kind, key, self._reading(kind, key))
            data = fields[-1] if fields[-2] is None else None
        if fields[0] is None or life == -2:
            return None
        try:
            return _parsed(key, fields, data, life)
        except (ValueError, TypeError, AttributeError) as error:
            raise self._damaged(kind.name, key, error) from None

    def _reading(self, kind: Kind, key: str) -> Sequence[Step]:
        name = [f"{PREFIX}r:{kind.name}:{key}"]
        return ("HMGET", name, _FIELDS), ("PTTL", name, [])

    async def _read(self, kind: Kind, key: str, steps: Sequence[Step]) -> Sequence[Any]:
        return [self._sound(result, kind, key) for result in await self._run(steps)]

    async def _run(self, steps: Sequence[Step], *, durable: bool = False) -> Sequence[Any]:
        return await self._link.steps(steps, _has_written if durable else None)

    def _sound(self, result: Any, kind: Kind | str, key: object) -> Any:
        if isinstance(result, DamagedKeys):
            raise self._damaged(kind if isinstance(kind, str) else kind.name, key, result.reason)
        return result

    def _damaged(self, kind: str, key: object, reason: object) -> DamagedRow:
        self._link.measures.errors["damaged"] += 1
        log.error("keys %s* in Redis: %s", PREFIX, reason)
        return DamagedRow(kind, key)


def _has_written(result: Any) -> bool:
    return isinstance(result, list) and result[0] == 1


def _ms(seconds: float) -> int:
    return max(1, ceil(seconds * 1_000))


def _parsed(key: str, fields: Sequence[bytes | None], data: bytes | None, life: int) -> Row:
    """Raises ValueError, TypeError and AttributeError for a damaged row."""
    version, owner, holder, term, *ends, link, _ = fields
    if owner is None or (link is not None and data is None):
        raise ValueError("a field is missing")
    return Row(
        key,
        owner.decode(),
        data or b"",
        int(version or b""),
        None if life < 0 else life / 1_000,
        None if holder is None else holder.decode(),
        int(term or 0),
        (int(ends[0] or 0), int(ends[1] or 0)),
    )

"""Learned words in Redis, for all replicas (EXEC-51).

Counting is done here and written under the version that was read: where another replica was faster, it is done again.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from wicketgate.catalog.learned_words import (
    HALF_LIFE_S,
    MAX_ACTOR_TOOLS,
    MAX_SIZE,
    Held,
    Lesson,
    ToolWords,
    giving_way,
)
from wicketgate.errors import ConfigError
from wicketgate.ports import LearnedRows
from wicketgate.storage.encoding import HASH_CHARS, hashed, packed, unpacked
from wicketgate.storage.learned_rows import packed_words, sound_words
from wicketgate.storage.measures import without_level
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.scripts import Script

log = logging.getLogger("wicketgate.learning")

_LIFE_S = 6 * HALF_LIFE_S
_TRIES = 10

# KEYS of all: state (epoch, version, dropped, size), rows by name, names by the version of their change, the number of
# tools by actor. A name begins with the hashed actor.
# ARGV: epoch and version that the caller knows, a new epoch. Returns epoch, version, whole, and names and rows in turn.
_READ = Script("""
local state = KEYS[1]
if redis.call('EXISTS', state) == 0 then
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  redis.call('HSET', state, 'epoch', ARGV[3], 'version', 0, 'dropped', 0, 'size', 0)
  redis.call('PEXPIRE', state, ARGV[4])
end
local epoch, version, dropped = unpack(redis.call('HMGET', state, 'epoch', 'version', 'dropped'))
local since = tonumber(ARGV[2])
local whole = since > 0 and (epoch ~= ARGV[1] or since > tonumber(version) or since < tonumber(dropped))
if whole then since = 0 end
local found = {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '(' .. since, '+inf')) do
  found[#found + 1] = name
  found[#found + 1] = redis.call('HGET', KEYS[2], name) or ''
end
return {epoch, tonumber(version), whole and 1 or 0, found}
""")

# ARGV: names. Returns epoch, version and size, then the row of each name.
_LOOK = Script("""
local found = {redis.call('HMGET', KEYS[1], 'epoch', 'version', 'size')}
for index, name in ipairs(ARGV) do found[index + 1] = redis.call('HGET', KEYS[2], name) end
return found
""")

# ARGV: epoch and version that were read, dropped (1 or 0), size in all, life in ms, the number of rows to write, names
# and rows in turn, names to drop. Returns the most tools that an actor of these rows has, 1 at least; 0 if somebody
# wrote meanwhile.
_WRITE = Script("""
local state = KEYS[1]
local epoch, version = unpack(redis.call('HMGET', state, 'epoch', 'version'))
if epoch ~= ARGV[1] or version ~= ARGV[2] then return 0 end
local next = redis.call('HINCRBY', state, 'version', 1)
redis.call('HSET', state, 'size', ARGV[4])
if ARGV[3] == '1' then redis.call('HSET', state, 'dropped', next) end
local most = 1
local last = 6 + 2 * tonumber(ARGV[6])
for index = 7, last, 2 do
  local actor = ARGV[index]:sub(1, 32)
  local tools = redis.call('HINCRBY', KEYS[4], actor, redis.call('HSET', KEYS[2], ARGV[index], ARGV[index + 1]))
  most = math.max(most, tools)
  redis.call('ZADD', KEYS[3], next, ARGV[index])
end
for index = last + 1, #ARGV do
  local actor = ARGV[index]:sub(1, 32)
  if redis.call('HINCRBY', KEYS[4], actor, -redis.call('HDEL', KEYS[2], ARGV[index])) < 1 then
    redis.call('HDEL', KEYS[4], actor)
  end
  redis.call('ZREM', KEYS[3], ARGV[index])
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[5]) end
return most
""")

Key = tuple[str, str]


class RedisLearnedStore:
    """Implements LearnedStore. *now* is the time of day in seconds. Words that nobody adds to for half a year are gone.

    The link is closed by its owner.
    """

    shared = True

    def __init__(
        self,
        link: RedisLink,
        now: Callable[[], float] = time.time,
        *,
        max_size: int = MAX_SIZE,
        max_actor_tools: int = MAX_ACTOR_TOOLS,
    ) -> None:
        self.now = now
        self._link = link
        self._max_size = max_size
        self._max_actor_tools = max_actor_tools
        self._keys = [link.names.key("learned", "words", part) for part in ("state", "rows", "changed", "tools")]
        self._epoch = ""
        self._turn = asyncio.Lock()

    async def learn(self, lessons: Sequence[Lesson], since: int) -> LearnedRows | None:
        async with self._turn:
            counted = False
            try:
                if lessons:
                    await self._count(lessons)
                    counted = True
                rows = await self._read(since)
            except RedisAway as away:
                level = without_level(self._link.measures.fail, "learned_words")
                log.log(level, "learned words cannot be kept or read at the moment: %s", away)
                # What was counted is not to be counted again.
                return LearnedRows(since, []) if counted else None
        self._link.measures.fail.answered("learned_words")
        return rows

    async def reset(self, actor: str | None = None, tool_id: str | None = None) -> int:
        async with self._turn:
            try:
                for _ in range(_TRIES):
                    version, rows = await self._all()
                    going = [key for key in rows if actor in (None, key[0]) and tool_id in (None, key[1])]
                    if not going or await self._drop(version, rows, going):
                        return len(going)
                raise RedisAway("late")
            except RedisAway as away:
                raise ConfigError(f"storage.url: {self._link.place}: {away}") from None

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    async def _read(self, since: int) -> LearnedRows:
        arguments = (self._epoch, since, secrets.token_hex(8), _life_ms())
        epoch, version, whole, found = await self._link.script(_READ, self._keys, arguments)
        self._epoch = epoch.decode()
        pairs = zip(found[::2], found[1::2], strict=True)
        return LearnedRows(version, list(_sound(self.now(), pairs)), bool(whole))

    async def _all(self) -> tuple[int, dict[Key, ToolWords]]:
        found = await self._read(0)
        return found.version, {(actor, tool_id): words for actor, tool_id, words in found.rows}

    async def _count(self, lessons: Sequence[Lesson]) -> None:
        names = list(dict.fromkeys(_name(each.actor, each.tool_id) for each in lessons))
        for _ in range(_TRIES):
            (epoch, version, size), *kept = await self._link.script(_LOOK, self._keys, names)
            if epoch is None:
                await self._read(0)  # begins it
                continue
            at = self.now()
            pairs = ((name, row) for name, row in zip(names, kept, strict=False) if row)
            before = {_name(actor, tool_id): words for actor, tool_id, words in _sound(at, pairs)}
            after = dict(before)
            for each in lessons:
                name = _name(each.actor, each.tool_id)
                after[name] = after.get(name, ToolWords()).taught(each.words, at, first=each.first)
            grown = sum(words.size for words in after.values()) - sum(words.size for words in before.values())
            tools = await self._write(epoch.decode(), int(version), int(size) + grown, rows=after)
            if tools:
                if int(size) + grown > self._max_size or tools > self._max_actor_tools:
                    await self._make_room()
                return
        raise RedisAway("late")

    async def _make_room(self) -> None:
        for _ in range(_TRIES):
            version, rows = await self._all()
            held = (Held(*key, words.size, words.at) for key, words in rows.items())
            going = [(each.actor, each.tool_id) for each in giving_way(held, self._max_size, self._max_actor_tools)]
            if await self._drop(version, rows, going):
                return

    async def _drop(self, version: int, rows: Mapping[Key, ToolWords], going: Sequence[Key]) -> bool:
        gone = frozenset(going)
        size = sum(words.size for key, words in rows.items() if key not in gone)
        return await self._write(self._epoch, version, size, drop=[_name(*key) for key in going]) > 0

    async def _write(
        self,
        epoch: str,
        version: int,
        size: int,
        *,
        rows: Mapping[bytes, ToolWords] | None = None,
        drop: Sequence[bytes] = (),
    ) -> int:
        """Returns the most tools that an actor of *rows* has; 0 if somebody wrote meanwhile."""
        written = [part for name, words in (rows or {}).items() for part in (name, _packed(words))]
        dropped = 0 if rows else 1
        arguments: list[str | bytes | int | float] = [epoch, version, dropped, size, _life_ms(), len(rows or ())]
        arguments += [*written, *drop]
        return int(await self._link.script(_WRITE, self._keys, arguments))


def _life_ms() -> int:
    return int(_LIFE_S * 1_000)


def _name(actor: str, tool_id: str) -> bytes:
    """The hashed actor, and both names."""
    return hashed(actor).encode() + packed([actor, tool_id])


def _packed(words: ToolWords) -> bytes:
    return packed([words.runs, words.at, packed_words(words)])


def _sound(now: float, pairs: Iterable[tuple[bytes, bytes]]) -> Iterable[tuple[str, str, ToolWords]]:
    """The rows that are not damaged."""
    for name, row in pairs:
        try:
            actor, tool_id = unpacked(name[HASH_CHARS:])
            runs, at, words = unpacked(row)
        except (ValueError, TypeError, RecursionError):
            continue
        sound = sound_words(now, runs, at, words)
        if sound is not None and isinstance(actor, str) and isinstance(tool_id, str):
            yield actor, tool_id, sound

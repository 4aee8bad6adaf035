"""Seen cards in Redis, for all replicas (BROWSE-71).

The step of a session runs here, and what it changed is written if the cards that it saw are still the same: where
another replica was faster, it runs again. All sessions are of one slot, because they are bounded together.
"""

import hashlib
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from wicketgate.call_state import Step, StoreAway
from wicketgate.ports import owner_of
from wicketgate.storage.encoding import hashed
from wicketgate.storage.memory_store import SESSION_BOUNDS, SessionBounds
from wicketgate.storage.redis.client import RedisAway, RedisLink, run_script
from wicketgate.storage.redis.scripts import Argument, Script
from wicketgate.storage.seen_rows import changed_cards, read_cards

T = TypeVar("T")

_TRIES = 20
_MARGIN_S = 300.0

# KEYS of all: use (sessions by their last use in microseconds), sizes (cards by session). The cards of a session stand
# under "<sizes>:<session>", the sessions of an actor by their last use under "<use>:<actor>". A name is
# "<actor>/<session>".

# ARGV: session, its time to live in microseconds, life of a key in ms, ids. Returns the cards. Counts as a use.
_LOOK = Script("""
local use, cards = KEYS[1], KEYS[2] .. ':' .. ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local used = redis.call('ZSCORE', use, ARGV[1])
if not used or tonumber(used) + tonumber(ARGV[2]) < now then return {} end
local found = {}
for index = 4, #ARGV do found[index - 3] = redis.call('HGET', cards, ARGV[index]) end
now = string.format('%.0f', now)
local own = use .. ':' .. ARGV[1]:match('^[^/]*')
redis.call('ZADD', use, now, ARGV[1])
redis.call('ZADD', own, now, ARGV[1])
for _, key in ipairs({use, KEYS[2], cards, own}) do redis.call('PEXPIRE', key, ARGV[3]) end
return found
""")

# ARGV: session, its time to live in microseconds, life of a key in ms, most sessions, most cards, most of an actor, the
# number of cards that were looked at, these (id, digest of what was there, or empty), then those to write (id, card).
# Returns 1, or 0 if somebody was faster.
_WRITE = Script("""
local use, sizes, session = KEYS[1], KEYS[2], ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local function drop(name)
  redis.call('UNLINK', sizes .. ':' .. name)
  redis.call('ZREM', use, name)
  redis.call('ZREM', use .. ':' .. name:match('^[^/]*'), name)
  redis.call('HINCRBY', sizes, '', 0 - (redis.call('HGET', sizes, name) or 0))
  redis.call('HDEL', sizes, name)
end
local lapsed = string.format('%.0f', now - tonumber(ARGV[2]))
for _, name in ipairs(redis.call('ZRANGEBYSCORE', use, '-inf', '(' .. lapsed, 'LIMIT', 0, 1000)) do drop(name) end
local used = redis.call('ZSCORE', use, session)
if used and tonumber(used) + tonumber(ARGV[2]) < now then drop(session) end
local cards, own = sizes .. ':' .. session, use .. ':' .. session:match('^[^/]*')
local last = 7 + 2 * tonumber(ARGV[7])
for index = 8, last, 2 do
  local there = redis.call('HGET', cards, ARGV[index])
  if (there and redis.sha1hex(there) or '') ~= ARGV[index + 1] then return 0 end
end
local added = 0
for index = last + 1, #ARGV, 2 do added = added + redis.call('HSET', cards, ARGV[index], ARGV[index + 1]) end
redis.call('HINCRBY', sizes, session, added)
redis.call('HINCRBY', sizes, '', added)
local score = string.format('%.0f', now)
redis.call('ZADD', use, score, session)
redis.call('ZADD', own, score, session)
if redis.call('ZCARD', own) > tonumber(ARGV[6]) then drop(redis.call('ZRANGE', own, 0, 0)[1]) end
while redis.call('ZCARD', use) > tonumber(ARGV[4])
    or (tonumber(redis.call('HGET', sizes, '')) > tonumber(ARGV[5]) and redis.call('ZCARD', use) > 1) do
  drop(redis.call('ZRANGE', use, 0, 0)[1])
end
for _, key in ipairs({use, sizes, cards, own}) do redis.call('PEXPIRE', key, ARGV[3]) end
return 1
""")


class RedisSessionStore:
    """Implements SessionStore. The link is closed by its owner."""

    def __init__(self, link: RedisLink, bounds: SessionBounds = SESSION_BOUNDS) -> None:
        self._link = link
        self._bounds = bounds
        self._keys = [link.names.key("seen", "sessions", part) for part in ("use", "cards")]

    async def update(self, session: str, ids: Collection[str], step: Step[T]) -> T:
        name = f"{hashed(owner_of(session))}/{hashed(session)}"
        fields = {tool_id: _text(tool_id) for tool_id in ids}
        try:
            return await self._link.run(lambda client: self._update(client, name, fields, step))
        except RedisAway as away:
            raise StoreAway(str(away)) from None

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    async def _update(self, client: Any, name: str, fields: Mapping[str, bytes], step: Step[T]) -> T:
        bounds = (self._bounds.max_sessions, self._bounds.max_cards, self._bounds.max_per_actor)
        for _ in range(_TRIES):
            found = await run_script(client, _LOOK, self._keys, [name, *self._lives(), *fields.values()])
            rows = dict(zip(fields, found, strict=False))
            before = read_cards((tool_id, row) for tool_id, row in rows.items() if row is not None)
            result, after = step(before)
            changed = changed_cards(before, after)
            if not changed and found:
                return result
            arguments: list[Argument] = [name, *self._lives(), *bounds, len(fields)]
            for tool_id, field in fields.items():
                arguments += (field, _digest(rows.get(tool_id)))
            for tool_id, row in changed.items():
                arguments += (_text(tool_id), row)
            if await run_script(client, _WRITE, self._keys, arguments):
                return result
        raise StoreAway("other processes change the same session again and again")

    def _lives(self) -> tuple[int, int]:
        age_s = self._bounds.max_age_s
        return int(age_s * 1_000_000), int((age_s + _MARGIN_S) * 1_000)


def _digest(row: bytes | None) -> str:
    return "" if row is None else hashlib.sha1(row, usedforsecurity=False).hexdigest()


def _text(tool_id: str) -> bytes:
    return tool_id.encode("utf-8", "surrogatepass")

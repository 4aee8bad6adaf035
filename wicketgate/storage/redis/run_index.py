"""The count of all runs in Redis, and of the bytes of their events: how many may be, and who gives room (CHAT-120).

It stands in a group of its own. A run counts there before it begins, so that a process that dies in between leaves
less than it said. Its bytes are told now and then while it goes on, and at its end.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wicketgate.storage.redis.client import DamagedKeys, RedisLink
from wicketgate.storage.redis.scripts import Argument, Script

log = logging.getLogger("wicketgate.engine")

GOES_ON, RELEASED = -1, -2
_EXPIRED_AT_ONCE = 1_000
_STRIPPED_BYTES = 256
"""Counted for what stays of a run that gave room: its end."""

# KEYS: runs (by the time when they are gone), live (by their lease), sizes, held (bytes by owner), count (runs by
# owner), total, ended (then ":<owner>": its ended runs, the oldest first). A member is "<owner>:<run>".
_START = """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000) + ARGV[1]
local runs, live, sizes, held, count, total, ended =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local function parts(member) return member:match('^(%x+):(.+)$') end
local function resize(member, size)
  local more = size - tonumber(redis.call('HGET', sizes, member) or 0)
  local owner = parts(member)
  redis.call('HSET', sizes, member, size)
  redis.call('INCRBY', total, more)
  if tonumber(redis.call('ZINCRBY', held, more, owner)) <= 0 then redis.call('ZREM', held, owner) end
end
local function drop(member)
  local owner, run = parts(member)
  resize(member, 0)
  redis.call('HDEL', sizes, member)
  redis.call('ZREM', live, member)
  redis.call('ZREM', ended .. ':' .. owner, run)
  if redis.call('ZREM', runs, member) == 1 and redis.call('HINCRBY', count, owner, -1) <= 0 then
    redis.call('HDEL', count, owner)
  end
end
local function keep(member, life)
  local owner = parts(member)
  if redis.call('ZADD', runs, now + life, member) == 1 then redis.call('HINCRBY', count, owner, 1) end
end
local function last(owner, life)
  for _, key in ipairs({runs, live, sizes, held, count, total, ended .. ':' .. owner}) do
    redis.call('PEXPIRE', key, life)
  end
end
"""

_ADMIT = Script(f"""{_START}
-- ARGV: owner, run, life and lease in ms, bytes in all. Returns the runs of the owner and of all before, and the runs
-- that give room.
local owner, me = ARGV[2], ARGV[2] .. ':' .. ARGV[3]
for _, member in ipairs(redis.call('ZRANGEBYSCORE', runs, '-inf', now, 'LIMIT', 0, {_EXPIRED_AT_ONCE})) do
  drop(member)
end
drop(me)
local before = {{tonumber(redis.call('HGET', count, owner) or 0), redis.call('ZCARD', runs)}}
keep(me, ARGV[4])
redis.call('ZADD', live, now + ARGV[5], me)
local giving, rank = {{}}, 0
while tonumber(redis.call('GET', total) or 0) > tonumber(ARGV[6]) and rank < 100 do
  local most = redis.call('ZREVRANGE', held, rank, rank)[1]
  if not most then break end
  local oldest = redis.call('ZPOPMIN', ended .. ':' .. most)[1]
  if oldest then
    resize(most .. ':' .. oldest, {_STRIPPED_BYTES})
    giving[#giving + 1] = oldest
  else
    rank = rank + 1
  end
end
last(owner, ARGV[4])
return {{before[1], before[2], giving}}
""")

_FORGET = Script(f"""{_START}
drop(ARGV[2])
""")

_LAPSED = Script(f"""{_START}
local found = {{}}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', live, '-inf', now, 'LIMIT', 0, ARGV[2])) do
  local _, run = parts(member)
  if not run or run:find('[^ -~]') then
    redis.call('ZREM', live, member)
  else
    found[#found + 1] = run
    found[#found + 1] = redis.call('ZSCORE', live, member) == '0' and 1 or 0
  end
end
return found
""")

_UNLIST = Script(f"""{_START}
for _, member in ipairs(redis.call('ZRANGEBYSCORE', live, '-inf', now)) do
  local _, run = parts(member)
  if run == ARGV[2] then redis.call('ZREM', live, member) end
end
""")

_TELL = Script(f"""{_START}
-- ARGV: life and lease in ms, then of each run: member, bytes, and for how many ms it is kept; -1 while it goes on,
-- -2 if it does so in no process.
for at = 4, #ARGV, 3 do
  local member, keeps = ARGV[at], tonumber(ARGV[at + 2])
  local owner, run = parts(member)
  keep(member, keeps < 0 and ARGV[2] or keeps)
  resize(member, tonumber(ARGV[at + 1]))
  if keeps < 0 then
    redis.call('ZADD', live, keeps == -2 and 0 or now + ARGV[3], member)
  else
    redis.call('ZREM', live, member)
    redis.call('ZADD', ended .. ':' .. owner, now, run)
  end
  last(owner, ARGV[2])
end
""")


# Removes what nobody here has written. Returns how many keys or rows that were.
_HEAL = Script("""
local runs, live, sizes, held, count, total, ended =
  KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7]
local removed = 0
local function typed(key, type)
  local is = redis.call('TYPE', key).ok
  if is ~= type and is ~= 'none' then
    redis.call('UNLINK', key)
    removed = removed + 1
  end
end
for key, type in pairs({[runs] = 'zset', [live] = 'zset', [sizes] = 'hash', [held] = 'zset', [count] = 'hash',
    [total] = 'string'}) do
  typed(key, type)
end
local function sift(key, members, step, pattern, drop)
  local owners = {}
  for at = 1, #members, step do
    local owner = members[at]:match(pattern)
    if not owner or (step == 2 and not members[at + 1]:match('^%d+$')) then
      redis.call(drop, key, members[at])
      removed = removed + 1
    else
      owners[owner] = true
    end
  end
  return owners
end
local run, owner = '^(%x+):[ -~]+$', '^(%x+)$'
for whose in pairs(sift(runs, redis.call('ZRANGE', runs, 0, -1), 1, run, 'ZREM')) do
  typed(ended .. ':' .. whose, 'zset')
end
sift(live, redis.call('ZRANGE', live, 0, -1), 1, run, 'ZREM')
sift(held, redis.call('ZRANGE', held, 0, -1), 1, owner, 'ZREM')
sift(count, redis.call('HGETALL', count), 2, owner, 'HDEL')
for whose in pairs(sift(sizes, redis.call('HGETALL', sizes), 2, run, 'HDEL')) do
  typed(ended .. ':' .. whose, 'zset')
end
local sum = 0
for _, size in ipairs(redis.call('HVALS', sizes)) do sum = sum + size end
if not (redis.call('GET', total) or '0'):match('^%-?%d+$') then removed = removed + 1 end
redis.call('SET', total, string.format('%.0f', sum), 'PX', ARGV[1])
return removed
""")


@dataclass(frozen=True, slots=True)
class Admitted:
    """*own* and *all* are the runs of the owner and of all before this one. *giving*: ended runs that lose their
    events."""

    own: int
    all: int
    giving: Sequence[str]


class RunIndex:
    """Times are in milliseconds. *ahead_ms* is added to the time of Redis."""

    def __init__(self, link: RedisLink, ahead_ms: Callable[[], int], life_ms: int, lease_ms: int) -> None:
        parts = ("runs", "live", "sizes", "held", "count", "total", "ended")
        self._link = link
        self._keys = [link.names.key("runs", "index", part) for part in parts]
        self._ahead_ms = ahead_ms
        self._life_ms = life_ms
        self._lease_ms = lease_ms

    async def admit(self, client: Any, owner: str, run: str, total_bytes: int) -> Admitted:
        """*owner* is hashed."""
        given = (owner, run, self._life_ms, self._lease_ms, total_bytes)
        own, every, giving = await self._ask(client, _ADMIT, (self._ahead_ms(), *given))
        return Admitted(own, every, [name.decode() for name in giving])

    async def lapsed(self, client: Any, most: int) -> Mapping[str, bool]:
        """Returns runs that go on, those first whose lease lapsed first, as far as was told; true for one that was
        released."""
        found = await self._ask(client, _LAPSED, (self._ahead_ms(), most))
        return {name.decode(): bool(released) for name, released in zip(found[::2], found[1::2], strict=True)}

    async def unlist(self, client: Any, run: str) -> None:
        """Lists a run that goes on no more among those that have lapsed."""
        await self._ask(client, _UNLIST, (self._ahead_ms(), run))

    async def forget(self, client: Any, owner: str, run: str) -> None:
        await self._ask(client, _FORGET, (self._ahead_ms(), f"{owner}:{run}"))

    async def tell(self, client: Any, runs: Sequence[tuple[str, str, int, int]]) -> None:
        """Each of *runs* is owner, run, bytes, and for how long it is kept; ``GOES_ON`` or ``RELEASED``
        while it has not ended."""
        each: list[Argument] = []
        for owner, run, size, keep_ms in runs:
            each += (f"{owner}:{run}", size, keep_ms)
        await self._ask(client, _TELL, (self._ahead_ms(), self._life_ms, self._lease_ms, *each))

    async def _ask(self, client: Any, script: Script, arguments: Sequence[Argument]) -> Any:
        """What keeps the script from running is removed once, because all runs are listed here."""
        step = (script, self._keys, arguments)
        (found,) = await self._link.scripts(client, [step], each=True)
        if not isinstance(found, DamagedKeys):
            return found
        (removed,) = await self._link.scripts(client, [(_HEAL, self._keys, (self._life_ms,))])
        log.error(
            "the index of runs with a key was damaged in Redis (%s): %d keys or rows of it were removed. Runs whose "
            "process had ended may not be gone on with; let nothing else write to this database",
            found.reason,
            removed,
        )
        (found,) = await self._link.scripts(client, [step])
        return found

"""Long calls, as they are kept in Redis, for all replicas (EXEC-47).

The row of a call stands under one key of its owner's slot. What is kept of all for making room stands in one group, the
index, as for artifacts; a row counts there before it comes.
"""

import logging
from typing import Any

from wicketgate.gateway.kept_calls import MOST_BYTES, StoreAway
from wicketgate.storage.encoding import hashed
from wicketgate.storage.redis.client import RedisAway, RedisLink, run_script
from wicketgate.storage.redis.scripts import Script

log = logging.getLogger("wicketgate.calls")

_KIND = "call"
_LAPSED_AT_ONCE = 1_000

# State has the bytes of all rows (total), those of calls that run (running), by owner the bytes of all of its rows
# (a:<owner>) and of those that run (r:<owner>), and a counter (uses).
_HEAD = """
local sizes, lapse, state, held, done = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local function count(field, by)
  if redis.call('HINCRBY', state, field, by) <= 0 then redis.call('HDEL', state, field) end
end
local function bytes(field) return tonumber(redis.call('HGET', state, field) or 0) end
local function add(owner, running, size)
  count('total', size)
  count('a:' .. owner, size)
  if running then
    count('running', size)
    count('r:' .. owner, size)
  elseif tonumber(redis.call('ZINCRBY', held, size, owner)) <= 0 then
    redis.call('ZREM', held, owner)
  end
end
local function drop(name)
  local kind, size = (redis.call('HGET', sizes, name) or ''):match('^(%a)(%d+)$')
  local owner, id = name:match('^(%x+):(%x+)$')
  redis.call('ZREM', lapse, name)
  redis.call('ZREM', done .. ':' .. owner, id)
  if redis.call('HDEL', sizes, name) == 1 and size then add(owner, kind == 'r', -tonumber(size)) end
end
"""

# KEYS: sizes by "<owner>:<id>" (r or e, for a call that runs or has ended, and its bytes), the times when rows lapse,
# state, bytes of what has ended by owner, done (then ":<owner>": its rows of ended calls by age).
# ARGV: owner, id, size, r or e, life in ms, bounds of all and of one owner, how many may lapse.
# Returns 1 if it is admitted, and the names of those that went.
_ADMIT = Script(
    _HEAD
    + """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local owner, id, needed, most, most_of_one = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[6]), tonumber(ARGV[7])
local own, gone = owner .. ':' .. id, {}
for _, name in ipairs(redis.call('ZRANGEBYSCORE', lapse, '-inf', now, 'LIMIT', 0, ARGV[8])) do drop(name) end
local kind, size = (redis.call('HGET', sizes, own) or ''):match('^(%a)(%d+)$')
local of_own = kind == 'r' and tonumber(size) or 0
if bytes('running') - of_own + needed > most or bytes('r:' .. owner) - of_own + needed > most_of_one then
  return {0, gone}
end
drop(own)
local function give_way(whose)
  local oldest = redis.call('ZRANGE', done .. ':' .. whose, 0, 0)[1]
  if not oldest then redis.call('ZREM', held, whose) return false end
  gone[#gone + 1] = whose .. ':' .. oldest
  drop(gone[#gone])
  return true
end
while bytes('a:' .. owner) + needed > most_of_one do
  if not give_way(owner) then break end
end
while bytes('total') + needed > most do
  local top = redis.call('ZREVRANGE', held, 0, 0, 'WITHSCORES')
  if not top[1] then break end
  local mine = redis.call('ZSCORE', held, owner)
  give_way(mine and tonumber(mine) + needed >= tonumber(top[2]) and owner or top[1])
end
redis.call('HSET', sizes, own, ARGV[4] .. needed)
redis.call('ZADD', lapse, now + ARGV[5], own)
if ARGV[4] == 'e' then redis.call('ZADD', done .. ':' .. owner, redis.call('HINCRBY', state, 'uses', 1), id) end
add(owner, ARGV[4] == 'r', needed)
for _, key in ipairs({sizes, lapse, state, held, done .. ':' .. owner}) do
  if redis.call('PTTL', key) < tonumber(ARGV[5]) then redis.call('PEXPIRE', key, ARGV[5]) end
end
return {1, gone}
"""
)

# ARGV: the name.
_DROP = Script(_HEAD + "drop(ARGV[1])")


class RedisCallStore:
    """Implements CallStore. *most_bytes* bounds the rows of all replicas: give each the same. The link is closed by its
    owner."""

    def __init__(self, link: RedisLink, most_bytes: int = MOST_BYTES) -> None:
        self._link = link
        self._most_bytes = most_bytes
        self._failed = False
        self._index = [link.names.key(_KIND, "index", part) for part in ("size", "lapse", "state", "held", "done")]

    async def put(self, owner: str, id: str, row: bytes, life_s: float, *, ended: bool) -> bool:
        whose, which, life_ms = hashed(owner), hashed(id), max(int(life_s * 1_000), 1)
        bounds = self._most_bytes, self._most_bytes // 2, _LAPSED_AT_ONCE
        wanted = whose, which, len(row), "e" if ended else "r", life_ms, *bounds

        async def put(client: Any) -> bool:
            admitted, gone = await run_script(client, _ADMIT, self._index, wanted)
            for name in gone:
                await client.unlink(self._key(*name.decode().split(":")))
            if admitted:
                await client.set(self._key(whose, which), row, px=life_ms)
            return bool(admitted)

        try:
            admitted = await self._link.run(put)
        except RedisAway as away:
            self._say("a long call is not kept", away)
            return False
        self._failed = False
        return admitted

    async def get(self, owner: str, id: str) -> bytes | None:
        name = self._key(hashed(owner), hashed(id))
        try:
            found: bytes | None = await self._link.run(lambda client: client.get(name))
        except RedisAway as away:
            self._say("a long call is not read", away)
            raise StoreAway from None
        self._failed = False
        return found

    async def drop(self, owner: str, id: str) -> None:
        whose, which = hashed(owner), hashed(id)

        async def drop(client: Any) -> None:
            await client.unlink(self._key(whose, which))
            await run_script(client, _DROP, self._index, [f"{whose}:{which}"])

        try:
            await self._link.run(drop)
        except RedisAway as away:
            log.debug("a long call is not removed: %s", away)

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    def _say(self, what: str, away: RedisAway) -> None:
        log.log(logging.DEBUG if self._failed else logging.ERROR, "%s: %s", what, away)
        self._failed = True

    def _key(self, whose: str, which: str) -> str:
        return self._link.names.key(_KIND, whose, which)

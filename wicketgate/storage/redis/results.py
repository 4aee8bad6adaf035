"""Results kept in Redis, to be given again by all replicas (EXEC-54).

All are of one slot, because they are bounded and cleared together.
"""

from collections.abc import Mapping
from typing import Any

from wicketgate.call_state import Found, Key, StoreAway
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.names import Names
from wicketgate.storage.redis.scripts import Argument, Script
from wicketgate.storage.result_rows import MAX_BYTES, MAX_RESULTS, packed_result, read_result, result_name

_DAY_MS = 86_400_000
_LONGEST_S = 43_200.0
"""No result is kept for longer, so that the bounds outlive what they count."""

# KEYS of all: state (cleared, bytes), ends (names by the time of their end in ms), sizes (by name). The value of a name
# stands under "<state>:<name>".
# ARGV: name. Returns how often it was cleared, and the value.
_GET = Script("""
return {redis.call('HGET', KEYS[1], 'cleared') or '', redis.call('GET', KEYS[1] .. ':' .. ARGV[1])}
""")

# ARGV: name, value, its life in ms, how often it had been cleared, most results, most bytes, life of the index in ms.
_PUT = Script("""
local state, ends, sizes = KEYS[1], KEYS[2], KEYS[3]
if (redis.call('HGET', state, 'cleared') or '') ~= ARGV[4] then return end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function drop(name)
  redis.call('UNLINK', state .. ':' .. name)
  redis.call('ZREM', ends, name)
  local size = redis.call('HGET', sizes, name)
  if not size then return end
  redis.call('HINCRBY', state, 'bytes', '-' .. size)
  redis.call('HDEL', sizes, name)
end
drop(ARGV[1])
for _, name in ipairs(redis.call('ZRANGEBYSCORE', ends, '-inf', now, 'LIMIT', 0, 1000)) do drop(name) end
local size = #ARGV[2]
while redis.call('ZCARD', ends) >= tonumber(ARGV[5])
    or tonumber(redis.call('HGET', state, 'bytes') or 0) + size > tonumber(ARGV[6]) do
  local first = redis.call('ZRANGE', ends, 0, 0)[1]
  if not first then
    redis.call('HSET', state, 'bytes', 0)
    break
  end
  drop(first)
end
redis.call('SET', state .. ':' .. ARGV[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', ends, string.format('%.0f', now + tonumber(ARGV[3])), ARGV[1])
redis.call('HSET', sizes, ARGV[1], size)
redis.call('HINCRBY', state, 'bytes', size)
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[7]) end
""")

# ARGV: the life of the index in ms.
_CLEAR = Script("""
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do redis.call('UNLINK', KEYS[1] .. ':' .. name) end
redis.call('UNLINK', KEYS[2], KEYS[3])
redis.call('HINCRBY', KEYS[1], 'cleared', 1)
redis.call('HSET', KEYS[1], 'bytes', 0)
redis.call('PEXPIRE', KEYS[1], ARGV[1])
""")


class RedisResultStore:
    """Implements ResultStore. Of too many results, the one that ends first goes first. The link is closed by its
    owner."""

    def __init__(self, link: RedisLink, *, max_results: int = MAX_RESULTS, max_bytes: int = MAX_BYTES) -> None:
        self._link = link
        self._max_results = max_results
        self._max_bytes = max_bytes
        self._keys = _keys(link.names)

    async def get(self, key: Key) -> Found:
        cleared, kept = await self._script(_GET, result_name(key))
        return Found(None if kept is None else read_result(kept), cleared)

    async def put(self, key: Key, result: Mapping[str, Any], ttl_s: float, since: object) -> None:
        kept = packed_result(result)
        life_ms = int(min(ttl_s, _LONGEST_S) * 1_000)
        if kept is not None and len(kept) <= self._max_bytes and life_ms > 0 and isinstance(since, bytes):
            bounds = (self._max_results, self._max_bytes, _DAY_MS)
            await self._script(_PUT, result_name(key), kept, life_ms, since, *bounds)

    async def clear(self) -> None:
        await self._script(_CLEAR, _DAY_MS)

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    async def _script(self, script: Script, *arguments: Argument) -> Any:
        try:
            return await self._link.script(script, self._keys, arguments)
        except RedisAway as away:
            raise StoreAway(str(away)) from None


def _keys(names: Names) -> list[str]:
    return [names.key("result", "results", part) for part in ("state", "ends", "sizes")]

"""Executions counted in Redis, for all replicas (ACCESS-93).

One script counts in all windows of an execution, or in none, by the clock of Redis. The windows of an actor are of one
slot.
"""

import itertools
import secrets
from collections.abc import Sequence

from wicketgate.call_state import WINDOW_S, Full, StoreAway, Window
from wicketgate.storage.encoding import hashed
from wicketgate.storage.open_quota import Taken
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.scripts import Argument, Script

_SECOND = 1_000_000
_GIVEN_AT_ONCE = 1_000
_MARGIN_S = 30

# KEYS: the windows, each a sorted set of marks by time in microseconds. ARGV: the window's length, the life of a key in
# ms, the mark of this execution (empty: count nothing), then the most of each window.
# Returns the number of the window that stays full longest (0: none is full), and for how long.
_TAKE = Script("""
local time = redis.call('TIME')
local now, length, mark = time[1] * 1000000 + time[2], tonumber(ARGV[1]), ARGV[3]
local full, longest = 0, -1
for index, key in ipairs(KEYS) do
  redis.call('ZREMRANGEBYSCORE', key, '-inf', string.format('%.0f', now - length))
  -- A step that is repeated, since its answer was lost, counts once.
  if mark ~= '' and redis.call('ZSCORE', key, mark) then return {0, 0} end
  local most, taken = tonumber(ARGV[3 + index]), redis.call('ZCARD', key)
  if taken >= most then
    local wait = length
    if most > 0 then
      local at = redis.call('ZRANGE', key, taken - most, taken - most, 'WITHSCORES')[2]
      wait = math.min(at + length - now, length)
    end
    if wait > longest then full, longest = index, wait end
  end
end
if full == 0 and mark ~= '' then
  for _, key in ipairs(KEYS) do
    redis.call('ZADD', key, string.format('%.0f', now), mark)
    redis.call('PEXPIRE', key, ARGV[2])
  end
end
return {full, longest}
""")

# KEYS: the windows. ARGV: the life of a key in ms, then number of the window, mark, and age in microseconds, in turn.
_GIVE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for index = 2, #ARGV, 3 do
  local key = KEYS[tonumber(ARGV[index])]
  redis.call('ZADD', key, string.format('%.0f', now - tonumber(ARGV[index + 2])), ARGV[index + 1])
end
for _, key in ipairs(KEYS) do redis.call('PEXPIRE', key, ARGV[1]) end
""")


class RedisQuotaStore:
    """Implements SharedQuota. The link is closed by its owner."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        own = secrets.token_hex(6)
        self._marks = (f"{own}{number:x}" for number in itertools.count())

    async def take(self, actor: str, windows: Sequence[Window], *, count: bool = True) -> Full | None:
        mark = next(self._marks) if count else ""
        arguments: list[Argument] = [int(WINDOW_S * _SECOND), _life_ms(), mark, *(window.most for window in windows)]
        try:
            full, wait = await self._link.script(_TAKE, self._keys(actor, [w.name for w in windows]), arguments)
        except RedisAway as away:
            raise StoreAway(str(away)) from None
        return Full(windows[full - 1], wait / _SECOND) if full else None

    async def give(self, actor: str, taken: Sequence[Taken]) -> None:
        for at in range(0, len(taken), _GIVEN_AT_ONCE):
            some = taken[at : at + _GIVEN_AT_ONCE]
            names = list(dict.fromkeys(name for each in some for name in each.names))
            arguments: list[Argument] = [_life_ms()]
            for each in some:
                for name in each.names:
                    arguments += [names.index(name) + 1, each.mark, int(each.ago_s * _SECOND)]
            try:
                await self._link.script(_GIVE, self._keys(actor, names), arguments)
            except RedisAway as away:
                raise StoreAway(str(away)) from None

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    def _keys(self, actor: str, names: Sequence[str]) -> list[str]:
        group = hashed(actor)
        return [self._link.names.key("quota", group, hashed(name) if name else "all") for name in names]


def _life_ms() -> int:
    return int((WINDOW_S + _MARGIN_S) * 1_000)

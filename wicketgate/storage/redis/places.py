"""Places of actors in Redis, counted for all replicas (ACCESS-97)."""

from collections.abc import Sequence

from wicketgate.storage.encoding import hashed
from wicketgate.storage.group_shares import LAPSE_S, Grant, PlacesAway, Wish
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.scripts import Script

_KIND = "places"
_LIFE_S = 60.0

# KEYS: members by the end of their life, then for each actor its places by member.
# ARGV: member, its life and that of keys in ms, the limit, then for each actor how many it holds here, and wants.
# Returns for each actor how many it gets, and how many it has elsewhere.
_SETTLE = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
local lives = {}
for _, member in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do lives[member] = true end
local answer = {}
for index = 2, #KEYS do
  local held, wanted = tonumber(ARGV[2 * index + 1]), tonumber(ARGV[2 * index + 2])
  local elsewhere = 0
  local all = redis.call('HGETALL', KEYS[index])
  for place = 1, #all, 2 do
    if not lives[all[place]] then redis.call('HDEL', KEYS[index], all[place])
    elseif all[place] ~= ARGV[1] then elsewhere = elsewhere + tonumber(all[place + 1]) end
  end
  local granted = math.max(0, math.min(wanted, ARGV[4] - elsewhere - held))
  if held + granted > 0 then
    redis.call('HSET', KEYS[index], ARGV[1], held + granted)
    redis.call('PEXPIRE', KEYS[index], ARGV[3])
  else
    redis.call('HDEL', KEYS[index], ARGV[1])
  end
  answer[#answer + 1] = granted
  answer[#answer + 1] = elsewhere
end
return answer
""")

_LEAVE = Script("return redis.call('ZREM', KEYS[1], ARGV[1])")


class RedisPlaces:
    """Implements PlaceStore. *member* is unique among the processes that share this Redis. The link is closed by its
    owner. Lives are counted by the clock of Redis."""

    def __init__(self, link: RedisLink, member: str, lapse_s: float = LAPSE_S) -> None:
        self.member = member
        self._link = link
        self._lives = (member, int(lapse_s * 1_000), int(_LIFE_S * 1_000))

    async def settle(self, kind: str, limit: int, wishes: Sequence[Wish]) -> Sequence[Grant]:
        keys = [self._key(kind, "lives"), *(self._key(kind, "of", hashed(wish.actor)) for wish in wishes)]
        numbers = [number for wish in wishes for number in (wish.held, wish.wanted)]
        try:
            answer = await self._link.script(_SETTLE, keys, (*self._lives, limit, *numbers))
        except RedisAway:
            raise PlacesAway from None
        return [Grant(granted, elsewhere) for granted, elsewhere in zip(answer[::2], answer[1::2], strict=True)]

    async def leave(self, kind: str) -> None:
        try:
            await self._link.script(_LEAVE, [self._key(kind, "lives")], (self.member,))
        except RedisAway:
            raise PlacesAway from None

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    def _key(self, kind: str, *rest: str) -> str:
        return self._link.names.key(_KIND, kind, *rest)

"""Used approvals in Redis, for all replicas (ACCESS-86, ACCESS-87)."""

import logging
import secrets
from collections.abc import Callable

from wicketgate.errors import NotAdmitted
from wicketgate.storage.encoding import hashed
from wicketgate.storage.measures import without_level
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.scripts import Script

log = logging.getLogger("wicketgate.approvals")

SKEW_S = 300.0
"""The most by which clocks of replicas may differ: a key stays so long after its end."""

# The value is the end and a mark of the caller, so that a step which redis-py repeats is told from another caller's. It
# is written again then, because WAIT speaks of what its own connection has written.
_ADD = Script("""
local held = redis.call('GET', KEYS[1])
if held then
  local stop, mark = held:match('^(%S+) (%S+)$')
  if mark ~= ARGV[3] and tonumber(stop) > tonumber(ARGV[2]) then return 0 end
end
redis.call('SET', KEYS[1], ARGV[1] .. ' ' .. ARGV[3], 'PX', ARGV[4])
return 1
""")


class RedisOnceStore:
    """Implements OnceStore for all replicas. *now* is the time of day in seconds.

    While Redis cannot keep a key, ``add`` raises NotAdmitted, behind Sentinel also if no replica of Redis has it: the
    key may be kept all the same. The link is closed by its owner.
    """

    def __init__(self, link: RedisLink, now: Callable[[], float]) -> None:
        self._link = link
        self._now = now

    async def add(self, key: str, until: float) -> bool:
        now = self._now()
        name = self._link.names.key("once", hashed(key))
        life_ms = int((max(until - now, 0.0) + SKEW_S) * 1_000)
        arguments = (repr(float(until)), repr(float(now)), secrets.token_hex(8), life_ms)
        try:
            (added,) = await self._link.run(
                lambda client: self._link.scripts(client, [(_ADD, [name], arguments)], bool)
            )
        except RedisAway as away:
            level = without_level(self._link.measures.fail, "approvals")
            log.log(level, "%s, so nothing that is approved can run", away)
            raise NotAdmitted("Approvals cannot be kept at the moment, so nothing that needs one can run.") from None
        self._link.measures.fail.answered("approvals")
        return bool(added)

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

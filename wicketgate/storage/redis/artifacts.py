"""Artifacts in Redis, shared by all replicas (EXEC-51).

The bytes of an artifact stand under one key of its owner's slot, so they are whole or not there. What is kept of all
for making room stands in one group, the index: sizes, ages and uses, changed by scripts. An artifact counts there
before its bytes come, so that a process that dies in between leaves less than it said, never more.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from typing import Any

from redis.exceptions import ResponseError

from wicketgate.errors import ViewFailed
from wicketgate.ports import Artifact, PutOutcome
from wicketgate.storage.encoding import hashed, packed, unpacked
from wicketgate.storage.measures import without_level
from wicketgate.storage.memory_store import MAX_AGE_S, MAX_BYTES, Bounds, Evicted, size_bytes
from wicketgate.storage.redis.client import RedisAway, RedisLink, run_script
from wicketgate.storage.redis.scripts import Script

log = logging.getLogger("wicketgate.artifacts")

_KIND = "artifact"
_INDEX = "index"
_HEAD_BYTES = 4
_EXPIRED_AT_ONCE = 1_000
_UNLINKED_AT_ONCE = 1_000
_MARGIN_S = 300.0

# KEYS: held (bytes by owner), age and size (by "<owner>:<handle>"), state, use (then ":<owner>": its artifacts by use).
# ARGV: owner, handle, size, now, the time before which all have expired, the bound, how many may expire, life in ms.
# Returns bytes by age, count by age, bytes for space, count for space, and the names of those that went.
_ADMIT = Script("""
local held, age, sizes, state, use = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local owner, needed, most = ARGV[1], tonumber(ARGV[3]), tonumber(ARGV[6])
local gone = {}
local function drop(name)
  local size = tonumber(redis.call('HGET', sizes, name) or 0)
  local whose, handle = name:match('^(%x+):(%x+)$')
  redis.call('HDEL', sizes, name)
  redis.call('ZREM', age, name)
  redis.call('ZREM', use .. ':' .. whose, handle)
  if tonumber(redis.call('ZINCRBY', held, -size, whose)) <= 0 then redis.call('ZREM', held, whose) end
  redis.call('HINCRBY', state, 'total', -size)
  return size
end
local own = owner .. ':' .. ARGV[2]
if redis.call('HEXISTS', sizes, own) == 1 then drop(own) end
local aged, aged_bytes, spaced, spaced_bytes = 0, 0, 0, 0
for _, name in ipairs(redis.call('ZRANGEBYSCORE', age, '-inf', ARGV[5], 'LIMIT', 0, ARGV[7])) do
  aged_bytes = aged_bytes + drop(name)
  aged = aged + 1
  gone[#gone + 1] = name
end
while tonumber(redis.call('HGET', state, 'total') or 0) + needed > most do
  local top = redis.call('ZREVRANGE', held, 0, 0, 'WITHSCORES')
  if not top[1] then redis.call('HSET', state, 'total', 0) break end
  local who, mine = top[1], redis.call('ZSCORE', held, owner)
  if mine and tonumber(mine) + needed >= tonumber(top[2]) then who = owner end
  local oldest = redis.call('ZRANGE', use .. ':' .. who, 0, 0)[1]
  -- Without uses, all of this owner have expired.
  local name = oldest and who .. ':' .. oldest or redis.call('ZRANGE', age, 0, 0)[1]
  if not name then redis.call('DEL', held, state) break end
  spaced_bytes = spaced_bytes + drop(name)
  spaced = spaced + 1
  gone[#gone + 1] = name
end
redis.call('HSET', sizes, own, needed)
redis.call('ZADD', age, ARGV[4], own)
redis.call('ZADD', use .. ':' .. owner, redis.call('HINCRBY', state, 'uses', 1), ARGV[2])
redis.call('ZINCRBY', held, needed, owner)
redis.call('HINCRBY', state, 'total', needed)
for _, key in ipairs({held, age, sizes, state, use .. ':' .. owner}) do redis.call('PEXPIRE', key, ARGV[8]) end
return {aged_bytes, aged, spaced_bytes, spaced, gone}
""")

# KEYS: state, use. ARGV: owner, handle.
_USE = Script("""
if redis.call('ZSCORE', KEYS[2] .. ':' .. ARGV[1], ARGV[2]) then
  redis.call('ZADD', KEYS[2] .. ':' .. ARGV[1], redis.call('HINCRBY', KEYS[1], 'uses', 1), ARGV[2])
end
""")


class RedisArtifactStore:
    """Implements ArtifactStore. *now* is the time of day in seconds.

    The bounds are those of all replicas together: give each the same. What cannot be sent or fetched within a second is
    not kept, or not to be had. The link is closed by its owner.
    """

    def __init__(
        self,
        link: RedisLink,
        max_bytes: int = MAX_BYTES,
        max_age_s: float = MAX_AGE_S,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._link = link
        self._bounds = Bounds(max_bytes, max_age_s)
        self._now = now
        self._index = [link.names.key(_KIND, _INDEX, part) for part in ("held", "age", "size", "state", "use")]

    async def put(self, owner: str, artifact: Artifact) -> PutOutcome:
        if self._bounds.refuses(artifact):
            return "too_large"
        try:
            evicted = await self._link.run(lambda client: self._put(client, owner, artifact))
        except RedisAway as away:
            level = without_level(self._link.measures.fail, "artifacts")
            log.log(level, "artifact of %d bytes not kept: %s", len(artifact.data), away)
            return "failed"
        self._link.measures.fail.answered("artifacts")
        evicted.log("redis")
        return "kept"

    async def get(self, owner: str, handle: str) -> Artifact | None:
        try:
            found = await self._link.run(lambda client: self._get(client, hashed(owner), hashed(handle)))
        except RedisAway as away:
            log.log(without_level(self._link.measures.fail, "artifacts"), "artifact not read: %s", away)
            raise ViewFailed("The artifact cannot be read at the moment. Try again later.", path=handle) from None
        if found is None:
            return None
        media_type, label, data = found
        return Artifact(handle, media_type, label, data)

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    async def _put(self, client: Any, owner: str, artifact: Artifact) -> Evicted:
        now, whose, handle = self._now(), hashed(owner), hashed(artifact.handle)
        age_s = self._bounds.max_age_s
        life_ms = int((age_s + _MARGIN_S) * 1_000)
        arguments = (
            whose,
            handle,
            size_bytes(artifact),
            repr(float(now)),
            repr(float(now - age_s)),
            self._bounds.max_bytes,
            _EXPIRED_AT_ONCE,
            life_ms,
        )
        aged_bytes, aged, spaced_bytes, spaced, gone = await run_script(client, _ADMIT, self._index, arguments)
        for at in range(0, len(gone), _UNLINKED_AT_ONCE):
            names = (name.decode().split(":") for name in gone[at : at + _UNLINKED_AT_ONCE])
            await client.unlink(*(self._key(*name) for name in names))
        await client.set(self._key(whose, handle), _packed(artifact, now), px=life_ms)
        return Evicted(aged, spaced, aged_bytes + spaced_bytes)

    async def _get(self, client: Any, whose: str, handle: str) -> tuple[str, str, bytes] | None:
        kept = await client.get(self._key(whose, handle))
        found = None if kept is None else _unpacked(kept)
        if found is None or found[0] + self._bounds.max_age_s <= self._now():
            return None
        # A Redis that takes no writes can be read all the same.
        with contextlib.suppress(ResponseError):
            await run_script(client, _USE, [self._index[3], self._index[4]], (whose, handle))
        return found[1:]

    def _key(self, whose: str, handle: str) -> str:
        return self._link.names.key(_KIND, whose, handle)


def _packed(artifact: Artifact, now: float) -> bytes:
    """The length of a head, the head as JSON, and the bytes."""
    head = packed([now, artifact.media_type, artifact.label])
    return b"".join((len(head).to_bytes(_HEAD_BYTES), head, artifact.data))


def _unpacked(kept: bytes) -> tuple[float, str, str, bytes] | None:
    """Returns time, media type, label and bytes; None for what nobody here has written."""
    end = _HEAD_BYTES + int.from_bytes(kept[:_HEAD_BYTES])
    try:
        stored_at, media_type, label = unpacked(kept[_HEAD_BYTES:end])
        return float(stored_at), str(media_type), str(label), kept[end:]
    except (ValueError, TypeError):
        return None

"""The rows of logins in Redis, for all replicas (ACCESS-150).

A row is one hash: ``owner``, ``data``, ``version``, ``until`` (its end as it was given, or empty) and ``mark``. Its
lease stands beside it. The names of the rows of an owner, and of a kind, are listed by their ends, each list in a slot
of its own. They are listed before the row is written, so that no owner has more than it may, and again afterwards,
because whoever reads a list takes out the names without a row.
"""

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from wicketgate.login.rows import MOST_LISTED, LoginsAway, Row, RowKind
from wicketgate.storage.encoding import hashed
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.scripts import Argument, Script, Step

log = logging.getLogger("wicketgate.login")

LIFE_S = 400 * 86_400.0
"""The time after its last write when a row without an end is dropped: nothing stays in Redis for ever."""
_AT_ONCE = 200

# KEYS: row. Returns owner, data, version and end.
_READ = Script("return redis.call('HMGET', KEYS[1], 'owner', 'data', 'version', 'until')")

# KEYS: row. ARGV: owner, data, version, end, mark of the writer, moment in ms when the key ends. Returns 1 if it was
# written. A step that redis-py repeats is told from another writer's by its mark; it is written again then, because
# WAIT speaks of what its own connection has written.
_WRITE = Script("""
local held = redis.call('HMGET', KEYS[1], 'version', 'mark')
local version = tonumber(held[1] or '0')
if version ~= tonumber(ARGV[3]) - 1 and not (held[1] == ARGV[3] and held[2] == ARGV[5]) then return 0 end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'data', ARGV[2], 'version', ARGV[3], 'until', ARGV[4], 'mark', ARGV[5])
redis.call('PEXPIREAT', KEYS[1], ARGV[6])
return 1
""")

# KEYS: list. ARGV: name of a row, its end in ms, the most live names or 0. Returns 0 if there is no room.
_LIST = Script("""
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
local most = tonumber(ARGV[3])
if most > 0 and not redis.call('ZSCORE', KEYS[1], ARGV[1]) and redis.call('ZCARD', KEYS[1]) >= most then return 0 end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('PEXPIREAT', KEYS[1], redis.call('ZRANGE', KEYS[1], -1, -1, 'WITHSCORES')[2])
return 1
""")

# KEYS: list. ARGV: the most names. Returns names.
_NAMES = Script("""
local clock = redis.call('TIME')
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', clock[1] * 1000 + math.floor(clock[2] / 1000))
return redis.call('ZRANGE', KEYS[1], 0, ARGV[1] - 1)
""")

# KEYS: list. ARGV: names.
_UNLIST = Script("""
for index = 1, #ARGV do redis.call('ZREM', KEYS[1], ARGV[index]) end
return 1
""")

_DELETE = Script("return redis.call('DEL', KEYS[1])")

# KEYS: lease. ARGV: holder, time in ms.
_LEASE = Script("""
local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
""")
_RELEASE = Script("""
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
""")


class RedisRowStore:
    """Implements RowStore for all replicas. *now* is the time of day in seconds. The link is closed by its owner.

    Behind Sentinel a write counts once a replica of Redis has it.
    """

    def __init__(self, link: RedisLink, now: Callable[[], float] = time.time) -> None:
        self._link = link
        self._now = now

    async def read(self, kind: RowKind, key: str) -> Row | None:
        (row,) = await self._rows(kind, [key])
        return row

    async def write(self, row: Row, *, most_of_owner: int | None = None) -> bool:
        until = row.expires_at
        ends_ms = int((self._now() + LIFE_S if until is None else until) * 1_000)
        own, of_kind = self._of_owner(row.kind, row.owner), self._of_kind(row.kind)
        lists: list[Step] = [(_LIST, [each], (row.key, ends_ms, 0)) for each in (own, of_kind)]
        # Room among the owner's rows, which names without a row must not take.
        if row.version == 1 and most_of_owner is not None:
            room: Step = (_LIST, [own], (row.key, ends_ms, most_of_owner))
            if not (await self._run([room]))[0]:
                await self.of_owner(row.kind, row.owner)
                if not (await self._run([room]))[0]:
                    return False
        else:
            await self._run(lists)
        # The row itself.
        end = "" if until is None else repr(float(until))
        values = (_bytes(row.owner), row.data, row.version, end, secrets.token_hex(8), ends_ms)
        (written,) = await self._run([(_WRITE, [self._row(row.kind, row.key)], values)], bool)
        if written:
            await self._run(lists)
        return bool(written)

    async def delete(self, kind: RowKind, key: str) -> bool:
        row = await self.read(kind, key)
        (there,) = await self._run([(_DELETE, [self._row(kind, key)], ())], bool)
        if row is not None:
            await self._unlist(kind, row.owner, [key])
        return bool(there)

    async def of_owner(self, kind: RowKind, owner: str | None) -> Sequence[Row]:
        listed = self._of_kind(kind) if owner is None else self._of_owner(kind, owner)
        (found,) = await self._run([(_NAMES, [listed], (MOST_LISTED,))])
        names = [name.decode("ascii", "replace") for name in found]
        rows, gone = list[Row](), list[str]()
        for start in range(0, len(names), _AT_ONCE):
            some = names[start : start + _AT_ONCE]
            for name, row in zip(some, await self._rows(kind, some), strict=True):
                if row is not None and owner in (None, row.owner):
                    rows.append(row)
                else:
                    gone.append(name)
        for start in range(0, len(gone), _AT_ONCE):
            await self._run([(_UNLIST, [listed], gone[start : start + _AT_ONCE])])
        return rows

    async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
        (taken,) = await self._run([(_LEASE, [self._lease(kind, key)], (holder, int(for_s * 1_000)))], bool)
        return bool(taken)

    async def release(self, kind: RowKind, key: str, holder: str) -> None:
        await self._run([(_RELEASE, [self._lease(kind, key)], (holder,))])

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    async def _rows(self, kind: RowKind, keys: Sequence[str]) -> Sequence[Row | None]:
        found = await self._run([(_READ, [self._row(kind, key)], ()) for key in keys])
        return [_read(kind, key, fields) for key, fields in zip(keys, found, strict=True)]

    async def _unlist(self, kind: RowKind, owner: str, names: Sequence[Argument]) -> None:
        await self._run([(_UNLIST, [each], names) for each in (self._of_owner(kind, owner), self._of_kind(kind))])

    async def _run(self, steps: Sequence[Step], wrote: Callable[[Any], bool] | None = None) -> Sequence[Any]:
        try:
            return await self._link.run(lambda client: self._link.scripts(client, steps, wrote))
        except RedisAway as away:
            log.debug("%s: logins can neither be read nor kept", away)  # the link has logged the outage
            raise LoginsAway from None

    def _row(self, kind: RowKind, key: str) -> str:
        return self._link.names.key(f"login-{kind}", key)

    def _lease(self, kind: RowKind, key: str) -> str:
        return self._link.names.key(f"login-{kind}", key, "lease")

    def _of_owner(self, kind: RowKind, owner: str) -> str:
        return self._link.names.key("login-owner", hashed(f"{kind}/{owner}"))

    def _of_kind(self, kind: RowKind) -> str:
        return self._link.names.key("login-all", kind)


def _read(kind: RowKind, key: str, fields: Sequence[bytes | None]) -> Row | None:
    """None for what nobody here has written."""
    owner, data, version, until = fields
    if owner is None or data is None or version is None or until is None:
        return None
    try:
        return Row(kind, key, _string(owner), data, int(version), float(until) if until else None)
    except ValueError:
        return None


# Any string may be an actor, even invalid Unicode.
def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _string(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")

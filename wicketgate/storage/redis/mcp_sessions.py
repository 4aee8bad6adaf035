"""Sessions of the handshake era in Redis, for all replicas (FACE-115).

A session is one hash: ``actor``, ``facts``, ``key``, ``level``, ``u:<uri>`` for each resource that it follows, and
``m:<member>`` with the time of its last renewal for each process that has it in use. That of an ended one has only
``ended``. The sessions of an actor at a face are one sorted set, by the time when each lapses.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from wicketgate.faces.mcp.kept_sessions import (
    ENDED_S,
    IDLE_S,
    MEMBER_S,
    RESERVED_S,
    KeptSession,
    Renewal,
    SessionChange,
    SessionsAway,
)
from wicketgate.storage.mcp_session_rows import packed_facts, session_of_facts
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.scripts import Argument, Script, Step

log = logging.getLogger("wicketgate.mcp")

_AT_ONCE = 16
_MEMBER_MS, _IDLE_MS, _ENDED_MS = int(MEMBER_S * 1_000), int(IDLE_S * 1_000), int(ENDED_S * 1_000)
_RESERVED_MS = int(RESERVED_S * 1_000)

_HEAD = f"""
local row = KEYS[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function members()
  local found = {{}}
  local all = redis.call('HGETALL', row)
  for index = 1, #all, 2 do
    if all[index]:sub(1, 2) == 'm:' then
      if tonumber(all[index + 1]) > now - {_MEMBER_MS} then
        found[#found + 1] = all[index]:sub(3)
      else
        redis.call('HDEL', row, all[index])
      end
    end
  end
  return found
end
local function live(ms)
  if redis.call('PTTL', row) < ms then redis.call('PEXPIRE', row, ms) end
end
"""

# ARGV: member, life in ms, 1 if an existing one is replaced, actor, facts, key, level, URIs. Returns 1 if it has ended.
_KEEP = Script(
    _HEAD
    + """
if redis.call('HEXISTS', row, 'ended') == 1 then return 1 end
if ARGV[3] == '1' or redis.call('HEXISTS', row, 'facts') == 0 then
  redis.call('HSET', row, 'actor', ARGV[4], 'facts', ARGV[5], 'key', ARGV[6], 'level', ARGV[7])
  for index = 8, #ARGV do redis.call('HSET', row, 'u:' .. ARGV[index], '') end
end
redis.call('HSET', row, 'm:' .. ARGV[1], now)
live(tonumber(ARGV[2]))
return 0
"""
)

# ARGV: member, life in ms, actor. Returns names and values of the hash in turn.
_JOIN = Script(
    _HEAD
    + """
if redis.call('HGET', row, 'actor') ~= ARGV[3] then return {} end
redis.call('HSET', row, 'm:' .. ARGV[1], now)
live(tonumber(ARGV[2]))
return redis.call('HGETALL', row)
"""
)

# ARGV: names to set with their values in turn, or names to drop. Returns the members.
_SET = Script(
    _HEAD
    + """
if redis.call('HEXISTS', row, 'facts') == 0 then return {} end
for index = 1, #ARGV, 2 do redis.call('HSET', row, ARGV[index], ARGV[index + 1]) end
return members()
"""
)
_DROP = Script(
    _HEAD
    + """
for index = 1, #ARGV do redis.call('HDEL', row, ARGV[index]) end
return members()
"""
)

# ARGV: how long the end is remembered, in ms. Returns the members that it had.
_END = Script(
    _HEAD
    + """
local had = members()
redis.call('DEL', row)
redis.call('HSET', row, 'ended', '1')
redis.call('PEXPIRE', row, ARGV[1])
return had
"""
)

_PLACES_HEAD = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""

# KEYS: the sessions of a holder. ARGV: name, its life and that of the key in ms, the limit. Returns 1 for a place.
_RESERVE = Script(
    _PLACES_HEAD
    + """
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZSCORE', KEYS[1], ARGV[1]) then return 1 end
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[4]) then return 0 end
redis.call('ZADD', KEYS[1], now + ARGV[2], ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
"""
)

# KEYS: the sessions of a holder. ARGV: name, its life and that of the key in ms, 1 if it must have a place already.
_HOLD = Script(
    _PLACES_HEAD
    + """
local until_now = redis.call('ZSCORE', KEYS[1], ARGV[1])
if ARGV[4] == '1' and not until_now then return 0 end
redis.call('ZADD', KEYS[1], math.max(now + ARGV[2], tonumber(until_now or 0)), ARGV[1])
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return 1
"""
)

_FREE = Script("return redis.call('ZREM', KEYS[1], ARGV[1])")


class RedisMcpSessionStore:
    """Implements McpSessionStore. The link is closed by its owner."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link

    @property
    def losses(self) -> int:
        return self._link.losses

    async def reserve(self, name: str, holder: str, most: int) -> bool:
        places = [self._places(holder)]
        (free,) = await self._scripts([(_RESERVE, places, (name, _RESERVED_MS, _IDLE_MS, most))])
        return bool(free)

    async def release(self, name: str, holder: str) -> None:
        await self._scripts([self._free(name, holder)])

    async def open(self, name: str, session: KeptSession, member: str, holder: str) -> None:
        keep = _KEEP, [self._key(name)], _kept(session, member, _IDLE_MS, anew=True)
        ended, _ = await self._scripts([keep, self._hold(name, holder, _IDLE_MS)])
        if ended:
            await self.release(name, holder)

    async def join(self, name: str, actor: str, member: str, holder: str) -> KeptSession | None:
        join = _JOIN, [self._key(name)], (member, _IDLE_MS, _bytes(actor))
        # Nobody knows yet whether there is such a session: only a place that it has lasts longer.
        found, _ = await self._scripts([join, self._hold(name, holder, _IDLE_MS, only_held=True)])
        row = dict(zip(found[::2], found[1::2], strict=True))
        if b"facts" not in row:
            return None
        try:
            uris = [_string(field[2:]) for field in row if field.startswith(b"u:")]
            key_id, level = _string(row.get(b"key", b"")), _string(row.get(b"level", b""))
        except UnicodeDecodeError:
            return None  # nobody here has written it
        return session_of_facts(row[b"facts"], key_id, level, uris)

    async def renew(self, renewals: Mapping[str, Renewal], member: str) -> Collection[str]:
        ended = list[str]()
        living = [(name, each) for name, each in renewals.items() if each.idle_s < IDLE_S]
        for start in range(0, len(living), _AT_ONCE):
            some = living[start : start + _AT_ONCE]
            answers = await self._run_some(some, member)
            gone = [(name, each.holder) for (name, each), answer in zip(some, answers, strict=True) if answer]
            ended += [name for name, _ in gone]
            if gone:
                await self._scripts([self._free(name, holder) for name, holder in gone])
        return ended

    async def change(self, name: str, change: SessionChange) -> Sequence[str]:
        fields = list[Argument]()
        if change.key_id is not None:
            fields += ["key", _bytes(change.key_id)]
        if change.log_level:
            fields += ["level", change.log_level]
        if change.follow:
            fields += [_field(change.follow), ""]
        members = await self._script(_SET, name, fields)
        if change.unfollow:
            members = await self._script(_DROP, name, [_field(change.unfollow)])
        return [_string(member) for member in members]

    async def members(self, name: str) -> Sequence[str]:
        return await self._members(_DROP, name, ())

    async def leave(self, name: str, member: str) -> Sequence[str]:
        return await self._members(_DROP, name, [f"m:{member}"])

    async def end(self, name: str, holder: str) -> Sequence[str]:
        end = _END, [self._key(name)], [_ENDED_MS]
        members, _ = await self._scripts([end, self._free(name, holder)])
        return [_string(member) for member in members]

    async def aclose(self) -> None:
        """Does nothing: the link is closed by its owner."""

    async def _members(self, script: Script, name: str, arguments: Sequence[Argument]) -> Sequence[str]:
        return [_string(member) for member in await self._script(script, name, arguments)]

    async def _run_some(self, renewals: Sequence[tuple[str, Renewal]], member: str) -> Sequence[Any]:
        keep = [(_KEEP, [self._key(name)], _kept(each.session, member, _left_ms(each))) for name, each in renewals]
        hold = [self._hold(name, each.holder, _left_ms(each)) for name, each in renewals]
        return (await self._scripts([*keep, *hold]))[: len(keep)]

    async def _script(self, script: Script, name: str, arguments: Sequence[Argument]) -> Any:
        (found,) = await self._scripts([(script, [self._key(name)], arguments)])
        return found

    async def _scripts(self, steps: Sequence[Step]) -> Sequence[Any]:
        try:
            return await self._link.run(lambda client: self._link.scripts(client, steps))
        except RedisAway as away:
            log.debug("%s: a session of a client is neither found nor kept", away)
            raise SessionsAway from None

    def _hold(self, name: str, holder: str, life_ms: int, *, only_held: bool = False) -> Step:
        return _HOLD, [self._places(holder)], (name, life_ms, life_ms, "1" if only_held else "0")

    def _free(self, name: str, holder: str) -> Step:
        return _FREE, [self._places(holder)], (name,)

    def _key(self, name: str) -> str:
        return self._link.names.key("mcp-session", name)

    def _places(self, holder: str) -> str:
        return self._link.names.key("mcp-sessions-of", holder)


def _kept(session: KeptSession, member: str, life_ms: int, *, anew: bool = False) -> Sequence[Argument]:
    uris = [_bytes(uri) for uri in session.uris]
    facts = _bytes(session.actor), packed_facts(session), _bytes(session.key_id), session.log_level
    return [member, life_ms, "1" if anew else "0", *facts, *uris]


def _left_ms(renewal: Renewal) -> int:
    return int((IDLE_S - renewal.idle_s) * 1_000)


def _field(uri: str) -> bytes:
    return b"u:" + _bytes(uri)


# Any string may be an address or a name, even invalid Unicode.
def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def _string(value: bytes) -> str:
    return value.decode("utf-8", "surrogatepass")

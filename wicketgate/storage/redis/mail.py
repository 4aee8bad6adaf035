"""The ways between replicas over the Redis that they share: a mailbox for each process (OPS-200, OPS-201).

A mailbox is a Stream that its process reads on one connection of its own, and empties as it reads. Beside it stands the
mark that the process is there, which lapses with it: nobody writes to one that is not. All are at one node of a
Cluster, so that what it lost of another process, it lost of this one too. Messages travel in pieces. Each
side of a channel numbers its own, and sends a few ahead of what the other has taken, so a slow reader holds up its
sender and nothing piles up. A piece that comes twice is passed over; a channel of which one is missing is broken off.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Literal

import msgspec
from redis import exceptions

from wicketgate.peer_channels import Channel, ChannelBroken, ChannelPeers
from wicketgate.peers import MAX_BYTES, NotReached, Others, new_peer_id
from wicketgate.storage.redis.client import RedisAway, RedisLink
from wicketgate.storage.redis.scripts import Script
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.peers")

THERE_S = 6.0
"""A process counts as ended when it has not renewed its mark for so long."""
RENEW_S = 1.5
_LOOK_S = 1.0
"""While something is under way with a process, its mark is looked for so often."""
_MAIL_S = 60.0
_PIECE_BYTES = 32 * 1024
_AHEAD = 16
"""Pieces that are sent before the other side has taken the first of them."""
_MOST_UNREAD = 4_096
_READ_AT_ONCE = 64
_BLOCK_S = 2.0
_AGAIN_S = 0.25
_ASK_AGAIN_S = 5.0
"""A side that has waited so long lets the other one say that it knows of the channel."""
_PATIENCE_S = 5.0
"""A channel outlives an outage of this length."""
_MAX_SERVED = 1_024
_LAST_WORDS_S = 1.0
_UNKNOWN = -1
"""The number of an ``end`` that answers a side whose channel is not known: what was sent on it is lost."""

# KEYS: mark, mailbox. ARGV: the frame, pieces at most, life of the mailbox in ms. Returns 0 if nobody is there.
_POST = Script("""
if redis.call('EXISTS', KEYS[1]) == 0 then return 0 end
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[2], '*', 'f', ARGV[1])
redis.call('PEXPIRE', KEYS[2], ARGV[3])
return 1
""")

# KEYS: mark. ARGV: life in ms. Returns whether it stood there.
_RENEW = Script("""
local there = redis.call('EXISTS', KEYS[1])
redis.call('SET', KEYS[1], '1', 'PX', ARGV[1])
return there
""")

# KEYS: the list of all processes. ARGV: this one, life in ms.
_ENROL = Script("""
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZADD', KEYS[1], now, ARGV[1])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
""")

Kind = Literal["more", "last", "taken", "end"]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[str, str, bool, Kind, int, bytes]).decode


class MailPeers(ChannelPeers):
    """Implements Peers for the processes that share a Redis."""

    def __init__(self, link: RedisLink) -> None:
        super().__init__(new_peer_id())
        self._link = link
        self._channels: dict[tuple[str, bool], _MailChannel] = {}
        self._serving = set[asyncio.Task[None]]()
        self._ending = set[asyncio.Task[None]]()
        self._was_there = False
        self._missed = False
        """True while the mark of this process cannot be renewed: no more can those of others."""
        self._stopping = False
        self._sure_from = float("-inf")

    async def alive(self, peer: str) -> bool:
        if peer == self.own_id:
            return True
        mark, own = self._mark(peer), self._mark(self.own_id)
        try:
            if await self._link.run(lambda client: client.exists(mark)):
                return True
            # A Redis that lost its keys lost this process's own mark too.
            if not await self._link.run(lambda client: client.exists(own)):
                self._doubt()
        except RedisAway:
            raise NotReached from None
        if self._missed or asyncio.get_running_loop().time() < self._sure_from:
            raise NotReached
        return False

    async def others(self) -> Others:
        try:
            found = await self._link.run(lambda client: client.zrange(self._list, 0, -1))
        except RedisAway:
            raise NotReached from None
        ids = [each.decode() for each in found]
        # A Redis that lost its keys has not heard of the others again either.
        if self.own_id not in ids or self._missed or asyncio.get_running_loop().time() < self._sure_from:
            raise NotReached
        return Others(tuple(each for each in ids if each != self.own_id))

    async def open(self, peer: str) -> Channel:
        return self._channel(peer, secrets.token_hex(8), asks=True)

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        self._stopping = self._was_there = False
        await self._renew()
        tasks = [
            asyncio.create_task(self._keep_mark(), name="the mark of this process"),
            asyncio.create_task(self._read(), name="the mailbox of this process"),
            asyncio.create_task(self._watch(), name="the marks of processes that are waited for"),
        ]
        try:
            yield
        finally:
            self._stopping = True
            await end_tasks(*self._serving)
            if self._ending:
                await asyncio.wait(self._ending, timeout=_LAST_WORDS_S)
            await end_tasks(*[*tasks, *self._ending])
            with contextlib.suppress(RedisAway):  # from now on nobody waits for an answer of this process
                await self._link.run(lambda client: client.unlink(self._mark(self.own_id), self._mailbox(self.own_id)))
                await self._link.run(lambda client: client.zrem(self._list, self.own_id))

    @property
    def _list(self) -> str:
        return self._link.names.key("peers", "all")

    def _mark(self, peer: str) -> str:
        return self._link.names.key("peer", "peers", peer)

    def _mailbox(self, peer: str) -> str:
        return self._link.names.key("peer", "peers", peer, "mail")

    async def post(self, channel: "_MailChannel", kind: Kind, number: int, data: bytes = b"") -> None:
        """Put a frame into the mailbox of the other side. Raises ChannelBroken; at once for the first of a channel."""
        frame = _encode((self.own_id, channel.id, channel.asks, kind, number, data))
        keys = (self._mark(channel.peer), self._mailbox(channel.peer))
        opens = channel.asks and kind != "taken" and not number
        give_up_at = asyncio.get_running_loop().time() + (0.0 if opens else _PATIENCE_S)
        while True:
            try:
                posted = await self._link.script(_POST, keys, (frame, _MOST_UNREAD, int(_MAIL_S * 1_000)))
            except RedisAway:
                # It may be there all the same: the other side passes over what comes twice.
                if asyncio.get_running_loop().time() >= give_up_at:
                    raise ChannelBroken from None
                await asyncio.sleep(_AGAIN_S)
                continue
            if not posted:
                raise ChannelBroken
            return

    def closed(self, channel: "_MailChannel", sent: int) -> None:
        """Tell the other side, which was *sent* so many pieces, without waiting for it."""
        self._channels.pop((channel.id, channel.asks), None)
        if sent and not channel.over:
            task = asyncio.create_task(self._end(channel, sent), name="the end of a channel")
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def _end(self, channel: "_MailChannel", sent: int) -> None:
        with contextlib.suppress(ChannelBroken):
            await self.post(channel, "end", sent)

    def _say_unknown(self, peer: str, id: str, *, asks: bool) -> None:
        task = asyncio.create_task(self._end(_MailChannel(self, peer, id, asks=asks), _UNKNOWN))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _channel(self, peer: str, id: str, *, asks: bool) -> "_MailChannel":
        channel = self._channels[id, asks] = _MailChannel(self, peer, id, asks=asks)
        return channel

    async def _keep_mark(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            await self._renew()

    async def _watch(self) -> None:
        """Break off what is under way with processes that have ended."""
        while True:
            await asyncio.sleep(_LOOK_S)
            for peer in {channel.peer for channel in self._channels.values()}:
                with contextlib.suppress(NotReached):
                    if not await self.alive(peer):
                        for channel in [each for each in self._channels.values() if each.peer == peer]:
                            channel.break_off()

    async def _renew(self) -> None:
        life_ms = int(THERE_S * 1_000)
        try:
            there = await self._link.script(_RENEW, [self._mark(self.own_id)], [life_ms])
            await self._link.script(_ENROL, [self._list], [self.own_id, life_ms])
        except RedisAway:
            self._missed = True
            return
        if self._missed:
            # It may have answered all the time, and taken no writes. The others need as long for theirs.
            self._missed = False
            self._sure_from = asyncio.get_running_loop().time() + 2 * RENEW_S
        if self._was_there and not there:
            self._doubt()
        self._was_there = True

    def _doubt(self) -> None:
        """The mark of this process was gone, so those of others may be gone too, and so may what was in mailboxes."""
        self._link.losses += 1
        self._sure_from = asyncio.get_running_loop().time() + 2 * RENEW_S
        for channel in list(self._channels.values()):
            channel.break_off()

    async def _read(self) -> None:
        client = self._link.waiting_client(_BLOCK_S)
        box, last = self._mailbox(self.own_id), b"0-0"
        while not self._stopping:  # redis-py may lose a cancellation
            try:
                found = await client.xread({box: last}, count=_READ_AT_ONCE, block=int(_BLOCK_S * 1_000))
                for _, entries in found or ():
                    for number, fields in entries:
                        last = number
                        self._take(fields.get(b"f", b""))
                    await client.xdel(box, *(number for number, _ in entries))
            except (exceptions.RedisError, OSError):
                log.debug("the mailbox of this process cannot be read", exc_info=True)
                await asyncio.sleep(_AGAIN_S)
                await self._renew()

    def _take(self, frame: bytes) -> None:
        try:
            peer, id, from_asker, kind, number, data = _decode(frame)
        except msgspec.DecodeError:
            return
        channel = self._channels.get((id, not from_asker))
        if channel is None:
            if from_asker and kind in ("more", "last") and not number and len(self._serving) < _MAX_SERVED:
                channel = self._channel(peer, id, asks=False)
                task = asyncio.create_task(self.serve(channel), name="a request of a peer")
                self._serving.add(task)
                task.add_done_callback(self._serving.discard)
            else:
                if kind == "taken":
                    self._say_unknown(peer, id, asks=not from_asker)
                return
        if channel.peer == peer:
            channel.take(kind, number, data)


class _MailChannel:
    """Implements Channel. *asks*: the side that opened it."""

    def __init__(self, mail: MailPeers, peer: str, id: str, *, asks: bool) -> None:
        self.peer = peer
        self.id = id
        self.asks = asks
        self._mail = mail
        self._sent = 0
        self._taken = 0
        """Pieces of ours that the other side has taken."""
        self._room = asyncio.Event()
        self._came = 0
        self._read = 0
        self._pieces = deque[tuple[Kind, bytes]]()
        self._news = asyncio.Event()
        self.over = False
        """True when the other side has ended, or the channel is broken off."""
        self.broken = False
        self._closed = False
        self._turn = asyncio.Lock()

    async def send(self, data: bytes) -> None:
        async with self._turn:
            pieces = [data[at : at + _PIECE_BYTES] for at in range(0, len(data), _PIECE_BYTES)] or [b""]
            for at, piece in enumerate(pieces):
                await self._until_room()
                number, self._sent = self._sent, self._sent + 1
                await self._mail.post(self, "last" if at == len(pieces) - 1 else "more", number, piece)

    async def receive(self) -> bytes | None:
        whole = bytearray()
        while True:
            while not self._pieces:
                if self.over:
                    return None
                self._news.clear()
                try:
                    async with asyncio.timeout(_ASK_AGAIN_S):
                        await self._news.wait()
                except TimeoutError:
                    await self._say_taken()
            kind, data = self._pieces.popleft()
            self._read += 1
            if self._read % (_AHEAD // 2) == 0:
                await self._say_taken()
            whole += data
            if len(whole) > MAX_BYTES:
                self.break_off()
                return None
            if kind == "last":
                return bytes(whole)

    async def aclose(self) -> None:
        if not self._closed:
            self._closed = True
            self._mail.closed(self, self._sent)
            self.break_off()

    def take(self, kind: Kind, number: int, data: bytes) -> None:
        """A frame of the other side."""
        if kind == "taken":
            self._taken = max(self._taken, number)
            self._room.set()
        elif number > self._came or len(self._pieces) > 2 * _AHEAD or number == _UNKNOWN:
            self.break_off()
        elif kind == "end":
            self.over = True
        elif number == self._came:
            self._came += 1
            self._pieces.append((kind, data))
        self._news.set()
        if self.over:
            self._room.set()

    def break_off(self) -> None:
        self.broken = self.broken or not self.over
        self.over = True
        self._news.set()
        self._room.set()

    async def _until_room(self) -> None:
        while self._sent - self._taken >= _AHEAD:
            if self.over:
                break
            self._room.clear()
            try:
                async with asyncio.timeout(_ASK_AGAIN_S):
                    await self._room.wait()
            except TimeoutError:
                await self._say_taken()
        if self.over:
            raise ChannelBroken

    async def _say_taken(self) -> None:
        """A side that does not know the channel any more answers that it has ended."""
        with contextlib.suppress(ChannelBroken):
            await self._mail.post(self, "taken", self._read)

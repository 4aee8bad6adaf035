"""Requests between peers over any transport that carries messages in order (OPS-198).

A channel carries one request. The asker says what it wants, waits until the peer takes it, and lets it begin: what was
given up by then never runs. The end of a channel is the end of the asker, or of the answer.
"""

import asyncio
import logging
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import msgspec

from wicketgate.log_text import correlation_id
from wicketgate.peers import (
    ASK_S,
    AsgiMessage,
    AsgiReceive,
    AsgiScope,
    AsgiSend,
    NotReached,
    Others,
    Payload,
    PeerAnswers,
)

log = logging.getLogger("wicketgate.peers")

TAKEN_S = 2.0
"""The longest wait for a peer to take a request."""
_BEGUN_S = 2 * TAKEN_S
_KEPT = (
    *("type", "asgi", "http_version", "method", "scheme", "path", "raw_path", "query_string", "root_path"),
    *("headers", "client", "server"),
)
_PEER = re.compile("[0-9a-f-]{1,40}")
_TAKEN, _BEGIN, _OTHER, _WHO = "taken", "begin", "other", "who"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


class ChannelBroken(Exception):
    """The other side is not there any more, or its messages were lost."""


class Channel(Protocol):
    """Whole messages both ways."""

    @property
    def broken(self) -> bool:
        """True if it has ended without a word of the other side: that is lost, and has not left."""
        ...

    async def send(self, data: bytes) -> None:
        """Return once there is room for more. Raises ChannelBroken."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None at the end, in order or not."""
        ...

    async def aclose(self) -> None:
        """The other side is told the end. Never raises."""
        ...


class ChannelPeers(PeerAnswers, ABC):
    """Implements Peers over channels, which subclasses open and take."""

    def __init__(self, own_id: str) -> None:
        super().__init__()
        self.own_id = own_id

    @abstractmethod
    async def alive(self, peer: str) -> bool:
        """As in Peers."""

    @abstractmethod
    async def others(self) -> Others:
        """As in Peers."""

    @abstractmethod
    async def open(self, peer: str) -> Channel:
        """A channel to *peer*. Raises NotReached."""

    async def ask(self, peer: str, operation: str, payload: Payload, timeout_s: float = ASK_S) -> Payload:
        try:
            async with asyncio.timeout(timeout_s):
                if peer == self.own_id:
                    return await self.of(operation, payload)
                async with self._begun(peer, {"ask": operation, "payload": payload}) as channel:
                    answer = await _received(channel)
        except (TimeoutError, ChannelBroken):
            raise NotReached from None
        if answer is None:
            raise await self._lost(peer)
        if "answer" not in answer:
            raise NotReached
        return dict(answer["answer"])

    async def forward(self, peer: str, scope: AsgiScope, receive: AsgiReceive, send: AsgiSend) -> None:
        if peer == self.own_id and self.app is not None:
            return await self.app(scope, receive, send)
        kept = {key: scope[key] for key in _KEPT if key in scope}
        async with self._begun(peer, {"http": kept}) as channel:
            sending = asyncio.create_task(_send_on(receive, channel))
            try:
                await _answer(channel, send, sending)
            finally:
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)

    async def serve(self, channel: Channel) -> None:
        """Answer the one request of a channel that a peer has opened."""
        try:
            wanted = await _received(channel)
            if wanted is None:
                return
            if _WHO in wanted:
                await channel.send(_encode({_WHO: self.own_id}))
                return
            if wanted.get("to") != self.own_id:
                await channel.send(_encode({_OTHER: True}))
                return
            await channel.send(_encode({_TAKEN: True}))
            async with asyncio.timeout(_BEGUN_S):
                begun = await channel.receive()
            if begun is None:
                return
            token = correlation_id.set(str(wanted.get("correlation_id", "-")))
            try:
                if "ask" in wanted:
                    await self._answer(channel, str(wanted["ask"]), wanted["payload"])
                elif "http" in wanted:
                    await self._serve_http(channel, wanted["http"])
            finally:
                correlation_id.reset(token)
        except (ChannelBroken, OSError):  # the built-in TimeoutError is an OSError
            log.debug("a peer that asked is not there any more", exc_info=True)
        except Exception:
            log.exception("a request of a peer failed")
        finally:
            await channel.aclose()

    @asynccontextmanager
    async def _begun(self, peer: str, wanted: Mapping[str, Any]) -> AsyncIterator[Channel]:
        """A channel whose request *peer* begins to answer. Raises NotReached."""
        if not _PEER.fullmatch(peer):  # clients can write what they like
            raise NotReached(gone=True)
        channel = await self.open(peer)
        try:
            try:
                async with asyncio.timeout(TAKEN_S):
                    await channel.send(_encode({"to": peer, "correlation_id": correlation_id.get(), **wanted}))
                    taken = await _received(channel)
                if taken is not None and _TAKEN in taken:
                    await channel.send(_encode({_BEGIN: True}))
            except TimeoutError:
                raise NotReached from None
            except ChannelBroken:
                raise await self._lost(peer) from None
            if taken is None:
                raise NotReached
            if _TAKEN not in taken:
                raise NotReached(gone=True)
            yield channel
        finally:
            await channel.aclose()

    async def _id_behind(self, channel: Channel) -> str:
        """The id of the process at the other end of a fresh *channel*. Raises NotReached."""
        try:
            async with asyncio.timeout(TAKEN_S):
                await channel.send(_encode({_WHO: True}))
                answer = await _received(channel)
        except (TimeoutError, ChannelBroken):
            raise NotReached from None
        finally:
            await channel.aclose()
        if answer is None or _WHO not in answer:
            raise NotReached
        return str(answer[_WHO])

    async def _lost(self, peer: str) -> NotReached:
        try:
            return NotReached(gone=not await self.alive(peer))
        except NotReached as unknown:
            return unknown

    async def _answer(self, channel: Channel, operation: str, payload: Payload) -> None:
        answering = asyncio.ensure_future(self.of(operation, payload))
        leaving = asyncio.ensure_future(channel.receive())
        try:
            await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not answering.done() and channel.broken and operation in self._outliving:
                await asyncio.wait((answering,))
            if not answering.done():
                return
            try:
                answer = {"answer": answering.result()}
            except NotReached:
                answer = {}
            await channel.send(_encode(answer))
        finally:
            answering.cancel()
            leaving.cancel()
            await asyncio.gather(answering, leaving, return_exceptions=True)

    async def _serve_http(self, channel: Channel, kept: Mapping[str, Any]) -> None:
        if self.app is None:
            return
        scope: AsgiScope = {**kept, "state": {"correlation_id": correlation_id.get()}}
        scope["headers"] = [(bytes(key), bytes(value)) for key, value in scope["headers"]]

        async def receive() -> AsgiMessage:
            return await _received(channel) or {"type": "http.disconnect"}

        async def send(message: AsgiMessage) -> None:
            try:
                await channel.send(_encode(message))
            except ChannelBroken:
                log.debug("a forwarded request has lost its client")

        await self.app(scope, receive, send)


async def _received(channel: Channel) -> dict[str, Any] | None:
    data = await channel.receive()
    return None if data is None else _decode(data)


async def _send_on(receive: AsgiReceive, channel: Channel) -> None:
    """Send what the client sends; returns when it has left."""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        await channel.send(_encode(message))


async def _answer(channel: Channel, send: AsgiSend, client: "asyncio.Task[None]") -> None:
    """Send what the peer answers, until its end or that of the *client*."""
    begun = False
    while True:
        receiving = asyncio.ensure_future(_received(channel))
        try:
            await asyncio.wait((receiving, client), return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done() and client.exception() is None:
                return  # it has left
            message = await receiving
        finally:
            receiving.cancel()
        if message is None:
            if begun:
                raise ConnectionError("the process that answered has ended")
            # It had begun: a proxy must not give the same request to another process.
            await send({"type": "http.response.start", "status": 502, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        begun = True
        await send(message)
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            return

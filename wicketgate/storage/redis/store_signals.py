"""Signals between processes that share a Redis: one connection, which subscribes to topics of this process.

A message that is published while the connection is lost never arrives, so each loss and each return of the connection
wakes all listeners.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from redis import exceptions

from wicketgate.storage.redis.client import PREFIX, WAIT_S, RedisLink
from wicketgate.storage.redis.lanes import ERRORS
from wicketgate.storage.signals import Listeners, Waiter
from wicketgate.storage.store import StoreUnavailable
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.storage")

_CHANNEL = f"{PREFIX}s:"
_AGAIN_S = 0.25
_QUIET_S = 5.0
"""After this silence the connection is tried with a ping; after another one it counts as lost."""


class RedisSignals:
    """For use from one event loop only."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link
        self._listeners = Listeners()
        self._client: Any = None
        self._connection: Any = None
        self._connected = asyncio.Event()
        self._subscribed: dict[str, asyncio.Event] = {}
        self._missing: set[str] = set()
        """Topics whose signals are missed until they are subscribed to again."""
        self._hearing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def listen(self, topic: str) -> AsyncIterator[Waiter]:
        """Raises StoreUnavailable if Redis does not confirm the subscription."""
        try:
            with self._listeners.listening(topic) as waiter:
                try:
                    async with asyncio.timeout(WAIT_S):
                        await self._subscribe(topic)
                except ERRORS as error:  # the built-in TimeoutError is an OSError
                    raise StoreUnavailable("Redis does not confirm a subscription") from error
                yield waiter
        finally:
            if topic not in self._listeners:
                self._missing.discard(topic)
                if self._subscribed.pop(topic, None) is not None:
                    await self._send("UNSUBSCRIBE", topic)

    async def aclose(self) -> None:
        await end_tasks(self._hearing)

    async def _subscribe(self, topic: str) -> None:
        if self._hearing is None or self._hearing.done():
            self._hearing = asyncio.create_task(self._hear(), name="signals in Redis")
        await self._connected.wait()
        if topic not in self._subscribed:
            self._subscribed[topic] = asyncio.Event()
            await self._send("SUBSCRIBE", topic)
        await self._subscribed[topic].wait()

    async def _send(self, command: str, *topics: str) -> None:
        # redis-py would open a lost connection again, without its subscriptions.
        if self._connection is not None and self._connection.is_connected:
            try:
                await self._connection.send_command(command, *(_CHANNEL + topic for topic in topics))
            # redis-py writes in a task of its own, and raises AttributeError if the connection was closed before.
            except (*ERRORS, AttributeError):
                log.debug("the connection for signals is lost", exc_info=True)

    async def _hear(self) -> None:
        self._client = self._client or self._link.waiting_client(_QUIET_S)
        while True:
            try:
                async with self._link.connection(self._client) as self._connection:
                    self._subscribed = {topic: asyncio.Event() for topic in self._listeners}
                    self._connected.set()
                    if self._subscribed:
                        await self._send("SUBSCRIBE", *self._subscribed)
                    await self._read()
            except ERRORS:
                log.debug("the connection for signals is lost", exc_info=True)
            finally:
                self._connection = None
                self._connected.clear()
                self._missing |= {topic for topic, subscribed in self._subscribed.items() if subscribed.is_set()}
                self._listeners.wake_all()
            await asyncio.sleep(_AGAIN_S)

    async def _read(self) -> None:
        quiet = False
        while True:
            message = await self._connection.read_response(timeout=_QUIET_S, disconnect_on_error=False)
            if message is None:
                if quiet:
                    raise exceptions.ConnectionError("no answer to a ping")
                await self._connection.send_command("PING")
            quiet = message is None
            if not isinstance(message, list) or len(message) < 3:
                continue
            kind, topic = message[0], message[1].decode().removeprefix(_CHANNEL)
            if kind == b"message":
                self._listeners.wake([topic])
            elif kind == b"subscribe" and (subscribed := self._subscribed.get(topic)):
                subscribed.set()
                if topic in self._missing:
                    self._missing.discard(topic)
                    self._listeners.wake([topic])

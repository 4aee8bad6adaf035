"""The check value of the seal ring: no process serves on the store of a gate with other keys (ACCESS-330 to 335).

The row is a nonce and its HMAC under the first key of the ring that wrote it. A ring without configured keys is random
and ends with its service. Such a row is held by a process of the service, and gives way when that has ended.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

from wicketgate.errors import ConfigError
from wicketgate.storage.core import DamagedRow
from wicketgate.storage.process import RELEASED, Process
from wicketgate.storage.store import BEAT_S, LOOK_S, MARK_S, NO_HOLDER, Conflict, Kind, Put, Row, Signal, Store, Take
from wicketgate.storage.store import StoreUnavailable as Unavailable
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.storage")

RING = Kind("seal_ring")
CHECK = "check"
_NONCE_BYTES = 16
_MAC_BYTES = 32
_PAUSE_S = 0.25

FOREIGN = (
    "the store of storage.url belongs to a gate with other auth.seal_keys: put a key of that gate into auth.seal_keys, "
    "behind the first, or set storage.url to another file or another database"
)
EPHEMERAL = (
    "auth.seal_keys: another process without common seal keys uses the store of storage.url: set the same keys for all "
    'its processes (seal_keys: ["${SEAL_KEY}"]; openssl rand -hex 32 makes one), or stop the other process first'
)
DAMAGED = (
    f"the store of storage.url has a damaged row ({RING.name} {CHECK!r}), so auth.seal_keys cannot be checked: set "
    "storage.url to another file or another database, or remove the row"
)


class RingCheck:
    """*keys* are the configured ones. *own_key* is the last key of each ring, and the only one if none is configured;
    it ends with the service. *refused* is called if the store, unavailable at the start, turns out to be another
    gate's."""

    def __init__(self, store: Store, process: Process, own_key: bytes, keys: Sequence[str]) -> None:
        self.refused: Callable[[ConfigError], None] = lambda error: None
        self._store = store
        self._process = process
        self._own_key = own_key
        self._keys = keys
        self._is_admitted = False
        self._is_closed = False
        self._looking: asyncio.Task[None] | None = None
        process.take_over(RING.name, self._take)
        process.on_lost(self._look_again)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Checks the ring at the start, and again whenever the mark of this process was lost. Raises ConfigError."""
        try:
            await self._admit()
        except Unavailable as error:
            log.warning("%s: auth.seal_keys are checked when the store is available", error)
            self._look_again()
        try:
            yield
        finally:
            self._is_closed = True
            await end_tasks(self._looking)
            with suppress(Unavailable, Conflict):
                await self._release()

    async def check(self, keys: Sequence[str]) -> None:
        """Raises ConfigError if a ring with *keys* must not take the place of the present one. Changes nothing."""
        try:
            row = await self._store.get(RING, CHECK)
        except DamagedRow:
            raise ConfigError(DAMAGED) from None
        except Unavailable as error:
            raise ConfigError(f"auth.seal_keys cannot be changed at the moment, because {error}") from None
        if row is not None and self._written_by(row, self._ring(keys)) is None:
            raise ConfigError(FOREIGN)

    async def follow(self, keys: Sequence[str]) -> None:
        """Puts *keys* in force, and the row under the first of them."""
        self._keys = keys
        with suppress(Unavailable, ConfigError):
            if await self._claim() is None:
                return
        self._look_again()

    async def _admit(self) -> None:
        """Returns when the row is this ring's. Waits while it is unknown whether a process with another random ring
        has ended. Raises ConfigError and StoreUnavailable."""
        now = asyncio.get_running_loop().time
        began = now()
        lapsed_at: float | None = None
        is_logged = False
        while (row := await self._claim(lapsed=lapsed_at is not None and now() - lapsed_at >= LOOK_S)) is not None:
            if row.holder is None:
                raise ConfigError(FOREIGN)
            if await self._store.alive(row.holder):
                lapsed_at = None
                if now() - began >= MARK_S + _PAUSE_S:
                    raise ConfigError(EPHEMERAL)
            elif lapsed_at is None:
                lapsed_at = now()  # taken later: another process of its service comes first
            if not is_logged:
                is_logged = True
                log.warning("waiting up to %g s for the end of another process on this store", MARK_S + LOOK_S)
            await asyncio.sleep(_PAUSE_S)
        self._is_admitted = True

    async def _claim(self, *, lapsed: bool = False) -> Row | None:
        """Writes the row, unless the first key has written it. Returns the row instead if another ring has written it
        that still counts; *lapsed*: not if a process holds it."""
        while True:
            try:
                row = await self._store.get(RING, CHECK)
                place = None if row is None else self._written_by(row, self._ring(self._keys))
            except DamagedRow:
                raise ConfigError(DAMAGED) from None
            if row is not None and row.holder != "":  # not released by the process that held it
                if place == 0:
                    return None
                if place is None and not (lapsed and row.holder):
                    return row
            nonce = secrets.token_bytes(_NONCE_BYTES)
            data = nonce + _mac(self._ring(self._keys)[0], nonce)
            holder = NO_HOLDER if self._keys else self._process.id
            with suppress(Conflict):
                put = Put(RING, CHECK, data, expect=0 if row is None else row.version, holder=holder)
                await self._store.step([put], durable=True)
                return None

    def _ring(self, keys: Sequence[str]) -> list[bytes]:
        return [*(key.encode() for key in keys), self._own_key]

    def _written_by(self, row: Row, ring: Sequence[bytes]) -> int | None:
        """Returns the place in *ring* of the key that wrote *row*. Raises ConfigError for a damaged row."""
        nonce, mac = row.data[:_NONCE_BYTES], row.data[_NONCE_BYTES:]
        if len(mac) != _MAC_BYTES:
            log.error("%s", DAMAGED)
            raise ConfigError(DAMAGED)
        places = (place for place, key in enumerate(ring) if hmac.compare_digest(_mac(key, nonce), mac))
        return next(places, None)

    def _look_again(self) -> None:
        if not self._is_closed and (self._looking is None or self._looking.done()):
            self._looking = asyncio.create_task(self._look(), name="check of the seal keys")

    async def _look(self) -> None:
        while True:
            try:
                await self._admit()
                return
            except Unavailable:
                await asyncio.sleep(BEAT_S)
            except ConfigError as error:
                log.error("%s", error)
                if not self._is_admitted:
                    self.refused(error)
                return

    async def _take(self, keys: Sequence[str]) -> None:
        """Takes the row of this ring that another process of the service held."""
        row = await self._store.get(RING, CHECK)
        if row is not None and not self._is_closed and self._written_by(row, self._ring(self._keys)) is not None:
            with suppress(Conflict):
                await self._store.step([Take(RING, CHECK, self._process.id)])

    async def _release(self) -> None:
        row = await self._store.get(RING, CHECK)
        if row is not None and row.holder == self._process.id:
            released = Put(RING, CHECK, None, expect=row.version, holder="")
            await self._store.step([released, Signal(RELEASED)])


def _mac(key: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, b"wicketgate seal ring 1" + nonce, "sha256")

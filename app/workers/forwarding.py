"""The ways between the workers of one host, over their Unix sockets (OPS-199).

A connection is a channel: messages, each after its length.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hashlib import sha256

from app.workers.place import Place
from wicketgate.peer_channels import Channel, ChannelBroken, ChannelPeers
from wicketgate.peers import MAX_BYTES, Marks, NotReached, Others, Unmarked, new_peer_id

_LENGTH_BYTES = 4
_CONNECT_S = 1.0
_LEAVES = bytes(_LENGTH_BYTES)
"""The last word of a side that ends a channel. No message is empty."""


class WorkerPeers(ChannelPeers):
    """Implements Peers for the worker at *place*. An id begins with the number of the worker and its service. Another
    process may be at its place by now, and says so. Of other services on the same store, *marks* show which processes
    have ended."""

    def __init__(self, place: Place, marks: Marks | None = None) -> None:
        self._service = sha256(bytes(place.folder)).hexdigest()[:8]
        self._marks = marks or Unmarked()
        super().__init__(f"{place.number}-{self._service}-{new_peer_id()}{self._marks.ending}")
        self._place = place

    async def alive(self, peer: str) -> bool:
        # A process that has another id answers nothing.
        try:
            async with self._begun(peer, {"look": True}):
                return True
        except NotReached as error:
            if error.gone:
                return False
            raise

    async def others(self) -> Others:
        numbers = (number for number in range(self._place.count) if number != self._place.number)
        found = await asyncio.gather(*(self._at(number) for number in numbers), return_exceptions=True)
        for each in found:
            if isinstance(each, BaseException) and not isinstance(each, NotReached):
                raise each
        # One that is not there yet takes everything from the configuration when it comes.
        unseen = sum(isinstance(each, NotReached) and not each.gone for each in found)
        return Others(tuple(each for each in found if isinstance(each, str)), unseen)

    async def _at(self, number: int) -> str:
        """The id of the worker of this number. Raises NotReached."""
        return await self._id_behind(await self._connect(number))

    async def open(self, peer: str) -> Channel:
        number, _, rest = peer.partition("-")
        if not number.isdecimal() or int(number) >= self._place.count or not rest.startswith(f"{self._service}-"):
            raise NotReached(gone=self._marks.ended(peer))
        return await self._connect(int(number))

    async def _connect(self, number: int) -> "_Connection":
        try:
            async with asyncio.timeout(_CONNECT_S):
                return _Connection(*await asyncio.open_unix_connection(self._place.door_of(number)))
        except (FileNotFoundError, ConnectionRefusedError):
            raise NotReached(gone=True) from None
        except (OSError, TimeoutError):
            raise NotReached from None

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        path = self._place.door_of(self._place.number)
        with suppress(FileNotFoundError):
            path.unlink()  # of the worker that was here before
        tasks = set[asyncio.Task[None]]()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                await self.serve(_Connection(reader, writer))
            finally:
                tasks.discard(task)
                writer.close()

        server = await asyncio.start_unix_server(serve, path)
        path.chmod(0o600)
        try:
            with self._marks.held(self.own_id):
                yield
        finally:
            server.close()
            for task in list(tasks):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Connection:
    """Implements Channel."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.broken = False

    async def send(self, data: bytes) -> None:
        try:
            self._writer.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
            await self._writer.drain()
        except OSError:
            raise ChannelBroken from None

    async def receive(self) -> bytes | None:
        try:
            length = int.from_bytes(await self._reader.readexactly(_LENGTH_BYTES), "big")
            if not length:
                return None
            if length <= MAX_BYTES:
                return await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, OSError):
            pass
        self.broken = True
        return None

    async def aclose(self) -> None:
        if not self._writer.is_closing():
            self._writer.write(_LEAVES)
            self._writer.close()

"""The metrics of all workers, as one of them shows them (OPS-180). Each gives its own over a Unix socket."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from app.workers.place import Place
from app.workers.scrape import merged, starts_text, workers_known

log = logging.getLogger("wicketgate.workers")

_ANSWER_S = 1.0
_MAX_BYTES = 16 * 1024 * 1024


class WorkerMetrics:
    """The metrics of the workers, for the one at *place*. *render* makes its own."""

    def __init__(self, place: Place, render: Callable[[], bytes]) -> None:
        self._place = place
        self._render = render

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """Gives this worker's metrics to the others while the context is open."""
        path = self._place.socket_of(self._place.number)
        with suppress(FileNotFoundError):
            path.unlink()  # of the worker that was here before
        server = await asyncio.start_unix_server(self._answer, path)
        os.chmod(path, 0o600)  # noqa: PTH101  # one system call; the folder is this user's alone anyway
        try:
            yield
        finally:
            server.close()

    async def metrics(self) -> bytes:
        """Returns the metrics of all workers that answer within a second."""
        own = self._place.number
        others = [number for number in range(self._place.count) if number != own]
        answers = await asyncio.gather(*(self._ask(number) for number in others))
        texts = {own: self._own()} | {
            number: text for number, text in zip(others, answers, strict=True) if text is not None
        }
        return (merged(dict(sorted(texts.items()))) + workers_known(texts, self._place.count)).encode()

    def _own(self) -> str:
        return self._render().decode() + starts_text(self._place.starts)

    async def _ask(self, number: int) -> str | None:
        """Returns the metrics of worker *number*; None if it does not give them."""
        try:
            async with asyncio.timeout(_ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(self._place.socket_of(number), limit=_MAX_BYTES)
                try:
                    return (await reader.read(-1)).decode()
                finally:
                    writer.close()
        except (OSError, TimeoutError, UnicodeDecodeError):
            log.debug("worker %d gave no metrics", number)
            return None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            writer.write(self._own().encode())
            await writer.drain()
        writer.close()

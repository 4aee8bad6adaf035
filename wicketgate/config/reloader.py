"""When the configuration is read again: when somebody says so, or its file has changed (gatekit G126, G127)."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio

from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError

log = logging.getLogger("wicketgate.configuration")

_LOOK_EVERY_S = 0.5


class Reloader:
    """*load* reads and checks the whole configuration, in a thread; *apply* puts it in force. What is wrong is told in
    one line of the log, and the configuration in force stays. Changes of the file *watched* count from now on."""

    def __init__(
        self,
        load: Callable[[], Settings],
        apply: Callable[[Settings], Awaitable[object]],
        *,
        ready: Callable[[], Awaitable[object]],
        watched: Path | None = None,
    ) -> None:
        self._load = load
        self._apply = apply
        self._ready = ready
        self._watched = watched
        self._as_read = _look(watched) if watched is not None else None
        self._wanted = asyncio.Event()

    def request(self) -> None:
        """Called on the event loop; returns at once. Requests that come together are one."""
        self._wanted.set()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Reload while the context is open."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._serve)
            if self._watched is not None:
                tasks.start_soon(self._watch, self._watched)
            yield
            tasks.cancel_scope.cancel()

    async def _serve(self) -> None:
        await self._ready()
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._apply(await asyncio.to_thread(self._load))
            except ConfigError as error:
                log.error("configuration not applied, the one in force stays: %s", "; ".join(str(error).splitlines()))
            except Exception:
                log.exception("configuration not applied, the one in force stays")

    async def _watch(self, file: Path) -> None:
        """Looks at the file twice a second: one call of the system, and it works on every file system and for files
        that are replaced or are links, where notifications do not. A change counts once the file has come to rest."""
        applied = seen = self._as_read
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            now = await asyncio.to_thread(_look, file)
            if now == seen and now != applied and now is not None:
                applied = now
                self.request()
            seen = now


def _look(file: Path) -> tuple[int, int, int] | None:
    """What is another after each change; None while there is no file."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino

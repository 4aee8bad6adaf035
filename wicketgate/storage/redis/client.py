"""The one connection pool of a process to the Redis of ``storage.url``, which holds no caller up (EXEC-52, OPS-161).

A caller waits a second at most, for all that it asks. After one that waited in vain further ones are refused at once,
until a ping is answered again. redis-py is imported with this module, which is imported only where it is needed.
"""

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from redis import exceptions
from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster, Sentinel, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import Connection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff

from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.redis.away import PAUSE_S, Presence, Trouble, explain
from wicketgate.storage.redis.names import Names
from wicketgate.storage.redis.promises import SETTINGS, shortfalls
from wicketgate.storage.redis.url import RedisPlace

log = logging.getLogger("wicketgate.storage")

T = TypeVar("T")

WAIT_S = 1.0
"""The longest wait of a caller."""
_CONNECT_S = 0.4
_CONNECTIONS = 32
_LOOK_S = 5.0
_CANCELLED_S = 0.1

Argument = str | bytes | int | float


class RedisAway(Exception):
    """Raised for what Redis did not do. Whether it did it nevertheless is not known after ``late``."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(f"Redis {explain(trouble)}")
        self.trouble = trouble


class Script:
    """A Lua script: its keys are of one group (``Names``)."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.digest = hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


class RedisLink:
    """Opens connections as they are needed. For use from one event loop only. *ca_file* has authorities that TLS trusts
    besides those of the system."""

    def __init__(
        self,
        place: RedisPlace,
        *,
        names: Names | None = None,
        ca_file: str = "",
        measures: StorageMeasures | None = None,
    ) -> None:
        self.place = place
        self.names = names or Names()
        self.measures = measures or StorageMeasures()
        self.shortfalls: tuple[str, ...] = ()
        """The promises that this Redis does not keep; known once it has answered in ``running``."""
        self._ca_file = ca_file
        self._presence = Presence()
        self._client: Any = None
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._look_now = asyncio.Event()

    @property
    def trouble(self) -> str:
        """Why it is away, as the end of a sentence; empty while it answers."""
        return "" if self._presence.trouble is None else explain(self._presence.trouble)

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Returns what *work* returns, which gets the client. Raises RedisAway."""
        if not self._presence.admits(asyncio.get_running_loop().time()):
            self.measures.refused += 1
            raise RedisAway(self._presence.trouble or "away")
        return await self._try(work)

    async def script(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """Runs *script*, which Redis learns at its first use. Raises RedisAway."""
        return await self.run(lambda client: run_script(client, script, keys, arguments))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks every few seconds for whether Redis answers, and closes the connections at the end. A Redis that is not
        there yet is no error."""
        await self._look()
        watch = asyncio.create_task(self._watch(), name="the Redis of storage.url")
        try:
            yield
        finally:
            # A connection that is being opened may swallow the cancellation.
            while not watch.done():
                watch.cancel()
                await asyncio.wait([watch], timeout=_CANCELLED_S)
            await self.aclose()

    async def aclose(self) -> None:
        self._client = None
        while self._closing:
            with contextlib.suppress(exceptions.RedisError, OSError):
                await self._closing.pop()()

    async def _try(self, work: Callable[[Any], Awaitable[T]]) -> T:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(WAIT_S):
                result = await work(self._opened())
        except (exceptions.RedisError, OSError) as error:  # the built-in TimeoutError is an OSError
            trouble = _trouble(error)
            self._failed(trouble)
            raise RedisAway(trouble) from None
        except BaseException:
            self._presence.gave_up()
            raise
        finally:
            self.measures.waits.observe(loop.time() - began)
        self._answered()
        return result

    def _failed(self, trouble: Trouble) -> None:
        self.measures.errors[trouble] += 1
        if self._presence.failed(trouble, asyncio.get_running_loop().time()):
            log.error("%s %s; nothing is kept there until it is back", self.place, explain(trouble))
            self._look_now.set()
        self.measures.away = self._presence.trouble is not None

    def _answered(self) -> None:
        since = self._presence.since
        if self._presence.answered():
            log.info("%s is back after %.1f s", self.place, asyncio.get_running_loop().time() - since)
        self.measures.away = False

    async def _watch(self) -> None:
        while True:
            away = self._presence.trouble is not None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PAUSE_S if away else _LOOK_S):
                    await self._look_now.wait()
            self._look_now.clear()
            await self._look()

    async def _look(self) -> None:
        """Asks whatever callers are told, and reads the settings, which a failover may have changed."""
        with contextlib.suppress(RedisAway):
            await self._try(lambda client: client.ping())
            found = shortfalls(self.place.kind, await self._settings())
            if found != self.shortfalls:
                for line in found:
                    log.warning("storage: %s", line)
            self.shortfalls = found

    async def _settings(self) -> dict[str, str] | None:
        try:
            found = await self._try(lambda client: _read_settings(client))
        except RedisAway as away:
            if away.trouble in ("away", "late"):
                raise
            self._answered()  # it answers, but not this
            return None
        return found or None

    def _opened(self) -> Any:
        if self._client is None:
            self._client = self._open()
        return self._client

    def _open(self) -> Any:
        place = self.place
        common: dict[str, Any] = {
            "socket_timeout": WAIT_S,
            "socket_connect_timeout": _CONNECT_S,
            "client_name": "wicketgate",
            "protocol": 2,
        }
        if place.tls:
            common |= {"ssl_ca_certs": self._ca_file or None, "ssl_check_hostname": True}
        login: dict[str, Any] = {"username": place.username, "password": place.password}
        if place.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in place.nodes]
            client: Any = RedisCluster(startup_nodes=nodes, ssl=place.tls, **common, **login)
        else:
            # A connection that Redis has closed meanwhile is opened again once: every step may be repeated.
            login |= {"db": place.database, "retry": Retry(NoBackoff(), 1)}
            pool = self._sentinel_pool(common, login) if place.kind == "sentinel" else self._pool(common | login)
            client = Redis.from_pool(pool)
        self._closing.append(client.aclose)
        return client

    def _pool(self, options: dict[str, Any]) -> Any:
        ((host, port),) = self.place.nodes
        options |= {"connection_class": SSLConnection if self.place.tls else Connection, "host": host, "port": port}
        return BlockingConnectionPool(_CONNECTIONS, timeout=WAIT_S, **options)

    def _sentinel_pool(self, common: dict[str, Any], login: dict[str, Any]) -> Any:
        """A dead Sentinel must leave time for the next one."""
        asked = {**common, "ssl": self.place.tls, "socket_timeout": _CONNECT_S, "retry": Retry(NoBackoff(), 0)}
        sentinel: Any = Sentinel(list(self.place.nodes), sentinel_kwargs=asked)  # type: ignore[no-untyped-call]
        self._closing += [each.aclose for each in sentinel.sentinels]
        pool: Any = SentinelConnectionPool  # it has no types
        return pool(self.place.service, sentinel, ssl=self.place.tls, **common, **login)


async def run_script(client: Any, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
    """Runs *script* within ``RedisLink.run``, beside other steps."""
    try:
        return await client.evalsha(script.digest, len(keys), *keys, *arguments)
    except exceptions.NoScriptError:
        return await client.eval(script.text, len(keys), *keys, *arguments)


async def _read_settings(client: Any) -> dict[str, str]:
    found: dict[Any, Any] = {}
    for name in SETTINGS:  # one by one: older servers take no more
        found |= await client.config_get(name)
    return {_string(name): _string(value) for name, value in found.items()}


def _string(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _trouble(error: Exception) -> Trouble:
    """Returns what an error of redis-py, or of the network, says about Redis."""
    if isinstance(error, exceptions.TimeoutError | TimeoutError):
        return "late"
    if isinstance(error, exceptions.AuthenticationError | exceptions.AuthorizationError | exceptions.NoPermissionError):
        return "denied"
    if isinstance(error, exceptions.OutOfMemoryError) or "OOM" in str(error):
        return "full"
    if isinstance(error, exceptions.ClusterDownError | exceptions.ConnectionError | OSError):
        return "away"
    if isinstance(error, exceptions.ReadOnlyError) or str(error).startswith(("MISCONF", "NOREPLICAS", "READONLY")):
        return "readonly"
    if isinstance(error, exceptions.ResponseError):
        return "denied" if str(error).startswith(("NOAUTH", "WRONGPASS", "NOPERM")) else "other"
    return "away"

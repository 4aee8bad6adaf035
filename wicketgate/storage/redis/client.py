"""The one connection pool of a process to the Redis of ``storage.url``, which holds no caller up (EXEC-52, OPS-161).

A caller waits a second at most, for all that it asks. After one that waited in vain further ones are refused at once,
until a ping is answered again. redis-py is imported with this module, which is imported only where it is needed.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
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
from wicketgate.storage.redis.lanes import ERRORS, LANES, Lanes, Patience, Step
from wicketgate.storage.redis.promises import SETTINGS, shortfalls
from wicketgate.storage.redis.url import RedisPlace
from wicketgate.storage.store import StoreUnavailable
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.storage")

T = TypeVar("T")

PREFIX = "wg1:store:{store}:"
"""All names begin with it. What is in braces decides the slot of a Cluster, so all keys are in one."""
WAIT_S = 1.0
"""The longest wait of a caller."""
_CONNECT_S = 0.4
_CONNECTIONS = 32
_LOOK_S = 5.0
_REPLICA_S = 0.5


class RedisAway(StoreUnavailable):
    """Raised for what Redis did not do. Whether it did it nevertheless is not known after ``late``."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__(f"Redis {explain(trouble)}")
        self.trouble = trouble


@dataclass(frozen=True, slots=True)
class DamagedKeys:
    """In place of the result of a step: what stands under its keys is not what is written there. *reason* is Redis's
    own."""

    reason: str


class RedisLink:
    """Opens connections as they are needed. For use from one event loop only. *ca_file* has authorities that TLS trusts
    besides those of the system."""

    def __init__(self, place: RedisPlace, *, ca_file: str = "", measures: StorageMeasures | None = None) -> None:
        self.place = place
        self.measures = measures or StorageMeasures()
        self.shortfalls: tuple[str, ...] = ()
        """The promises that this Redis does not keep; known once it has answered in ``running``."""
        self._ca_file = ca_file
        self._presence = Presence()
        self._client: Any = None
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._lanes = Lanes(self._opened, WAIT_S, int(_REPLICA_S * 1_000), is_cluster=self._is_cluster)
        self._look_now = asyncio.Event()
        self._warm = False

    @property
    def trouble(self) -> str:
        """The reason why it is away, as the end of a sentence; empty while it answers."""
        return "" if self._presence.trouble is None else explain(self._presence.trouble)

    async def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """Returns what *work* returns, which gets the client. Raises RedisAway."""
        if not self._presence.admits(asyncio.get_running_loop().time()):
            self.measures.refused += 1
            raise RedisAway(self._presence.trouble or "away")
        return await self._try(work)

    async def steps(self, steps: Sequence[Step], wrote: Callable[[Any], bool] | None = None) -> Sequence[Any]:
        """Runs *steps* in this order, in one exchange; each may be repeated. A step that fails for the values under its
        keys gives a DamagedKeys, and fails no other. Raises RedisAway.

        With *wrote*, and behind Sentinel, a replica of Redis must have what they wrote within half a second, otherwise
        RedisAway is raised: then it may be written all the same. *wrote* is true of the result of a step that wrote.
        """
        return await self.run(lambda _: self._steps(steps, wrote))

    async def _steps(self, steps: Sequence[Step], wrote: Callable[[Any], bool] | None) -> Sequence[Any]:
        waits = wrote is not None and self.place.kind == "sentinel"
        found = await self._lanes.ask(steps, waits=waits)
        for at, result in enumerate(found):
            if isinstance(result, BaseException):
                if not _is_damage(result):
                    raise result
                found[at] = DamagedKeys(str(result))
        replicas = found.pop() if waits else 1
        done = (result for result in found if not isinstance(result, DamagedKeys))
        if wrote is not None and replicas < 1 and any(map(wrote, done)):
            raise RedisAway("readonly")
        return found

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Looks every few seconds for whether Redis answers, and closes the connections at the end. A Redis that is not
        there yet is no error."""
        await self._look()
        watch = asyncio.create_task(self._watch(), name="the Redis of storage.url")
        try:
            yield
        finally:
            await end_tasks(watch)
            await self.aclose()

    async def aclose(self) -> None:
        await self._lanes.aclose()
        self._client = None
        while self._closing:
            with contextlib.suppress(*ERRORS):
                await self._closing.pop()()

    def waiting_client(self, longest_s: float) -> Any:
        """Returns a client of its own for steps that wait in Redis for *longest_s* at most. Its errors are redis-py's
        and of the network, and it is closed with the link."""
        return self._open(longest_s + WAIT_S)

    @asynccontextmanager
    async def connection(self, client: Any) -> AsyncIterator[Any]:
        """Opens a connection of a ``waiting_client``, to any node of a Cluster."""
        if self._is_cluster:
            await client.initialize()
            node = client.get_random_node()
            connection = node.connection_class(**node.connection_kwargs)
            await connection.connect()
        else:
            connection = await client.connection_pool.get_connection()
        try:
            yield connection
        finally:
            await connection.disconnect(nowait=True)
            if not self._is_cluster:
                await client.connection_pool.release(connection)

    @property
    def _is_cluster(self) -> bool:
        return self.place.kind == "cluster"

    async def _try(self, work: Callable[[Any], Awaitable[T]]) -> T:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        began, cancelling = loop.time(), task.cancelling() if task else 0
        try:
            async with Patience(WAIT_S):
                result = await work(self._opened())
        except ERRORS as error:  # the built-in TimeoutError is an OSError
            trouble = _trouble(error)
            self._failed(trouble)
            raise RedisAway(trouble) from None
        except BaseException:
            self._presence.gave_up()
            raise
        finally:
            self.measures.waits.observe(loop.time() - began)
        self._answered()
        # asyncio.wait_for of Python 3.11, by which redis-py sends, forgets a cancellation that comes at a wrong moment.
        if task and task.cancelling() > cancelling:
            raise asyncio.CancelledError
        return result

    def _failed(self, trouble: Trouble) -> None:
        self.measures.errors[trouble] += 1
        if self._presence.failed(trouble, asyncio.get_running_loop().time()):
            self._warm = False
            log.error("%s %s; nothing is stored there until it is available again", self.place, explain(trouble))
            self._look_now.set()
        self.measures.away = self.trouble

    def _answered(self) -> None:
        since = self._presence.since
        if self._presence.answered():
            self.measures.fail.back()
            log.info("%s is available again after %.1f s", self.place, asyncio.get_running_loop().time() - since)
        self.measures.away = ""

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
            warm, self._warm = self._warm, True
            await self._try(self._ping)
            if not warm:
                # Connections at once, while nobody waits for them yet.
                await asyncio.gather(*(self._try(self._ping) for _ in range(LANES)))
            found = shortfalls(self.place.kind, await self._settings())
            if found != self.shortfalls:
                for line in found:
                    log.warning("storage: %s", line)
            self.shortfalls = found

    async def _ping(self, client: Any) -> None:
        if self._is_cluster:
            await client.exists(PREFIX)  # at the node that has the slot of all keys
        else:
            await client.ping()

    async def _settings(self) -> Sequence[Mapping[str, str]] | None:
        """Returns the settings of the server, or of each master of a Cluster; None if one does not tell them."""
        try:
            found = await self._try(self._read_settings)
        except RedisAway as away:
            if away.trouble in ("away", "late"):
                raise
            self._answered()  # it answers, but not this
            return None
        return found if all(found) else None

    async def _read_settings(self, client: Any) -> Sequence[Mapping[str, str]]:
        nodes = [{"target_nodes": node} for node in client.get_primaries()] if self._is_cluster else [{}]
        return [await _read_settings(client, node) for node in nodes]

    def _opened(self) -> Any:
        if self._client is None:
            self._client = self._open(None)
        return self._client

    def _open(self, timeout_s: float | None) -> Any:
        """None for no timeout of redis-py's own: ``run`` bounds the whole, and the task in which redis-py would send
        otherwise fails with nobody to hear it when its connection is gone."""
        place = self.place
        common: dict[str, Any] = {
            "socket_timeout": timeout_s,
            "socket_connect_timeout": _CONNECT_S,
            "client_name": "wicketgate",
            "protocol": 2,
        }
        if place.tls:
            common |= {"ssl_ca_certs": self._ca_file or None, "ssl_check_hostname": True}
        login: dict[str, Any] = {"username": place.username, "password": place.password}
        if place.kind == "cluster":
            nodes = [ClusterNode(host, port) for host, port in place.nodes]
            retry = Retry(NoBackoff(), 2)
            client: Any = RedisCluster(startup_nodes=nodes, ssl=place.tls, retry=retry, **common, **login)
        else:
            # A connection that Redis has closed in the meantime is opened again once: every step may be repeated.
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


async def _read_settings(client: Any, node: Mapping[str, Any]) -> Mapping[str, str]:
    found: dict[Any, Any] = {}
    for name in SETTINGS:  # one by one: older servers take no more
        found |= await client.config_get(name, **node)
    return {_string(name): _string(value) for name, value in found.items()}


def _is_damage(error: BaseException) -> bool:
    """True for the error of a script that failed for what stands under its keys."""
    if not isinstance(error, exceptions.ResponseError) or _trouble(error) != "other":
        return False
    return "user_script" in str(error) or str(error).startswith("WRONGTYPE")


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
    if isinstance(
        error, exceptions.ClusterDownError | exceptions.ConnectionError | exceptions.RedisClusterException | OSError
    ):
        return "away"
    if isinstance(error, exceptions.AskError | exceptions.TryAgainError | exceptions.ClusterError):
        return "moving"
    if isinstance(error, exceptions.ReadOnlyError) or str(error).startswith(("MISCONF", "NOREPLICAS", "READONLY")):
        return "readonly"
    if isinstance(error, exceptions.ResponseError):
        return "denied" if str(error).startswith(("NOAUTH", "WRONGPASS", "NOPERM")) else "other"
    return "away"

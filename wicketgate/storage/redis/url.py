"""The URL of a Redis: one server, one behind Sentinel, or a Cluster (OPS-160)."""

import re
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import SplitResult, unquote, urlsplit

Kind = Literal["single", "sentinel", "cluster"]

_KINDS: dict[str, Kind] = {"": "single", "sentinel": "sentinel", "cluster": "cluster"}
_SCHEME = re.compile(r"(rediss?)(?:\+(sentinel|cluster))?://")
_NODE = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::([0-9]{1,5}))?")
_SERVICE = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_PORT = 6379
_SENTINEL_PORT = 26379
_MAX_PORT = 65_535


@dataclass(frozen=True, slots=True)
class RedisPlace:
    """*nodes* are pairs of host and port: of the server, of the Sentinels that watch *service*, or of some nodes of the
    Cluster."""

    kind: Kind
    nodes: tuple[tuple[str, int], ...]
    tls: bool = False
    database: int = 0
    service: str = ""
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        """The URL without user and password, for logs."""
        scheme = ("rediss" if self.tls else "redis") + ("" if self.kind == "single" else f"+{self.kind}")
        nodes = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.nodes)
        path = [part for part in (self.service, str(self.database) if self.database else "") if part]
        return f"{scheme}://{'/'.join([nodes, *path])}"


def is_redis(url: str) -> bool:
    """True for a URL that is meant for Redis, right or wrong."""
    return url.partition(":")[0].partition("+")[0] in ("redis", "rediss")


def read_url(url: str) -> RedisPlace:
    """Raises ValueError, which says what to write and holds nothing of the URL: a password may stand in it."""
    scheme = _SCHEME.match(url)
    if scheme is None:
        raise ValueError(
            "must begin with redis://, rediss:// (TLS), redis+sentinel://, rediss+sentinel://, redis+cluster:// or "
            "rediss+cluster://"
        )
    kind = _KINDS[scheme[2] or ""]
    try:
        parts = urlsplit(f"redis://{url[scheme.end() :]}")
    except ValueError:
        raise ValueError("is not a URL; write brackets around an IPv6 address: redis://[::1]:6379") from None
    if parts.query or parts.fragment:
        raise ValueError("takes no options after ? or #; write % as %25, ? as %3F and # as %23 in a password")
    username, password, nodes = _authority(parts, _SENTINEL_PORT if kind == "sentinel" else _PORT)
    if kind == "single" and len(nodes) > 1:
        raise ValueError("names several hosts; write redis+sentinel:// or redis+cluster:// for those")
    service, database = _path(kind, [part for part in parts.path.split("/")[1:] if part])
    return RedisPlace(kind, nodes, scheme[1] == "rediss", database, service, username, password)


def _authority(parts: SplitResult, port: int) -> tuple[str | None, str | None, tuple[tuple[str, int], ...]]:
    credentials, at, hosts = parts.netloc.rpartition("@")
    username, colon, password = credentials.partition(":")
    nodes = []
    for each in hosts.split(","):
        node = _NODE.fullmatch(each)
        if node is None or not 0 < int(node[2] or port) <= _MAX_PORT:
            raise ValueError("must name a host, with a port if it is not the usual one: redis://redis.internal:6379")
        nodes.append((node[1].strip("[]"), int(node[2] or port)))
    if at and not (colon and password):
        raise ValueError("names a user without a password; write redis://user:password@host, or redis://:password@host")
    return unquote(username) or None, unquote(password) or None, tuple(nodes)


def _path(kind: Kind, path: list[str]) -> tuple[str, int]:
    service = ""
    if kind == "sentinel":
        if not path or not _SERVICE.fullmatch(path[0]):
            raise ValueError("must name the service after the hosts: redis+sentinel://host:26379/mymaster")
        service = path.pop(0)
    if not path:
        return service, 0
    if len(path) > 1 or not re.fullmatch(r"[0-9]{1,4}", path[0]):
        raise ValueError("may end with the number of a database and nothing else: redis://redis.internal/2")
    if kind == "cluster" and int(path[0]):
        raise ValueError("names a database, but a Cluster has only the first; leave it out")
    return service, int(path[0])

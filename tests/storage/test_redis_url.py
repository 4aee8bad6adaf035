"""URLs of Redis, and what the settings of a Redis are worth."""

import pytest

from tests.support.requirement import requirement
from wicketgate.storage.redis.away import PAUSE_S, Presence
from wicketgate.storage.redis.promises import shortfalls
from wicketgate.storage.redis.url import RedisPlace, is_redis, read_url


@requirement("OPS-160")
@pytest.mark.parametrize(
    ("url", "place", "shown"),
    [
        ("redis://localhost", RedisPlace("single", (("localhost", 6379),)), "redis://localhost:6379"),
        ("redis://[::1]:7000/3", RedisPlace("single", (("::1", 7000),), database=3), "redis://[::1]:7000/3"),
        (
            "rediss://gate:p%40ss%2Fword@r.internal/",
            RedisPlace("single", (("r.internal", 6379),), tls=True, username="gate", password="p@ss/word"),
            "rediss://r.internal:6379",
        ),
        (
            "redis://:secret@r.internal",
            RedisPlace("single", (("r.internal", 6379),), password="secret"),
            "redis://r.internal:6379",
        ),
        (
            "redis+sentinel://:x@a,b:26380/mymaster/2",
            RedisPlace("sentinel", (("a", 26379), ("b", 26380)), database=2, service="mymaster", password="x"),
            "redis+sentinel://a:26379,b:26380/mymaster/2",
        ),
        (
            "rediss+cluster://a:7000,b:7001,c",
            RedisPlace("cluster", (("a", 7000), ("b", 7001), ("c", 6379)), tls=True),
            "rediss+cluster://a:7000,b:7001,c:6379",
        ),
    ],
)
def test_a_url_names_one_server_sentinels_or_a_cluster(url: str, place: RedisPlace, shown: str) -> None:
    assert is_redis(url)
    assert read_url(url) == place
    assert str(place) == shown
    assert "p@ss" not in repr(place)


@requirement("OPS-160")
@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("redis:/x", "must begin with redis://"),
        ("redis+unix:///x", "must begin with redis://"),
        ("redis://", "must name a host"),
        ("redis://:6379", "must name a host"),
        ("redis://host:0", "must name a host"),
        ("redis://host:70000", "must name a host"),
        ("redis://ho st", "must name a host"),
        ("redis://[::1", "brackets around an IPv6 address"),
        ("redis://a,b", "redis+sentinel:// or redis+cluster://"),
        ("redis://secret@host", "user without a password"),
        ("redis://host/0?secret=1", "takes no options"),
        ("redis://:sec#ret@host", "takes no options"),
        ("redis://host/secret", "number of a database"),
        ("redis://host/1/2", "number of a database"),
        ("redis+sentinel://host", "must name the service"),
        ("redis+sentinel://host/a b", "must name the service"),
        ("redis+cluster://host/1", "a Cluster has only the first"),
    ],
)
def test_a_wrong_url_is_told_how_to_write_it_without_its_secrets(url: str, says: str) -> None:
    with pytest.raises(ValueError) as raised:
        read_url(url)
    assert says in str(raised.value)
    assert "secret" not in str(raised.value)
    assert raised.value.__cause__ is None


def test_other_urls_are_not_of_redis() -> None:
    assert not any(map(is_redis, ("memory://", "sqlite:///redis://x", "redisx://", "var/redis")))


@requirement("EXEC-52")
def test_after_a_failure_one_tries_for_all() -> None:
    state = Presence()
    assert state.admits(0.0)
    assert state.failed("away", 10.0)
    assert not state.failed("late", 10.1), "it was away before"
    assert (state.trouble, state.since) == ("late", 10.0)
    assert not state.admits(10.0 + PAUSE_S)
    assert state.admits(10.1 + PAUSE_S)
    assert not state.admits(99.0), "one is trying"
    state.gave_up()
    assert state.admits(99.0)
    assert state.answered()
    assert not state.answered()
    assert state.admits(99.0)


@requirement("EXEC-52")
def test_a_redis_that_refuses_a_write_is_there() -> None:
    state = Presence()
    assert not state.failed("full", 10.0)
    assert not state.failed("readonly", 10.0)
    assert state.admits(10.0)


SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "maxmemory": "0",
    "maxmemory-policy": "noeviction",
    "min-replicas-to-write": "0",
}


@requirement("OPS-162", "OPS-187")
@pytest.mark.parametrize(
    ("kind", "changes", "says"),
    [
        ("single", {}, []),
        ("single", {"appendonly": "no"}, ["set appendonly yes"]),
        ("single", {"appendfsync": "everysec"}, ["set appendfsync always"]),
        ("single", {"maxmemory": "1000", "maxmemory-policy": "allkeys-lru"}, ["set maxmemory-policy noeviction"]),
        ("single", {"maxmemory": "1000"}, []),
        ("sentinel", {}, ["set min-replicas-to-write 1"]),
        ("sentinel", {"min-replicas-to-write": "1"}, []),
        ("cluster", {}, ["a failover of the Cluster"]),
        ("cluster", {"appendonly": "no"}, ["a failover of the Cluster", "set appendonly yes"]),
    ],
)
def test_each_setting_that_breaks_a_promise_is_named(kind: str, changes: dict[str, str], says: list[str]) -> None:
    settings = SAFE | changes
    # Of a Cluster the settings of each master count.
    each = [{**SAFE}, settings] if kind == "cluster" else [settings]
    lines = shortfalls(kind, each)  # type: ignore[arg-type]
    assert len(lines) == len(says)
    assert all(part in line for part, line in zip(says, lines, strict=True))
    assert all("approvals" in line and "key" in line for line in lines)


@requirement("OPS-162")
def test_settings_that_are_not_told_promise_nothing() -> None:
    assert "is unknown" in shortfalls("single", None)[0]

"""The link to a Redis that dies, stops, comes back, fails over, wants TLS or a password, or is a Cluster."""

import asyncio
import contextlib
import itertools
import logging
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.storage.artifact_store_contract import artifact, handle
from tests.storage.learned_store_contract import lesson
from tests.support.certificates import Authority
from tests.support.process import ROOT
from tests.support.redis import PASSWORD, RedisServer, free_port, redis_server
from tests.support.requirement import requirement
from wicketgate.engine.journal import Entry
from wicketgate.errors import NotAdmitted, ViewFailed
from wicketgate.storage.memory_journal import JournalBounds
from wicketgate.storage.redis.artifacts import RedisArtifactStore
from wicketgate.storage.redis.client import WAIT_S, RedisAway, RedisLink
from wicketgate.storage.redis.learned import RedisLearnedStore
from wicketgate.storage.redis.once import RedisOnceStore
from wicketgate.storage.redis.runs import RedisRunStore
from wicketgate.storage.redis.url import Kind, read_url
from wicketgate.storage.run_store import NewEvents, Part, StoreAway

BOUND_S = 40.0
GUIDE = ROOT / "docs" / "operations.md"
FOREVER = 4_000_000_000.0


@asynccontextmanager
async def linked(url: str, ca_file: str = "") -> AsyncIterator[RedisLink]:
    link = RedisLink(read_url(url), ca_file=ca_file)
    async with asyncio.timeout(BOUND_S), link.running():
        yield link


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.02)


async def use_everything(link: RedisLink) -> None:
    """One step of each kind."""
    store = RedisArtifactStore(link)
    assert await store.put("ann", artifact("one")) == "kept"
    assert await store.get("ann", handle("one")) == artifact("one")
    once = RedisOnceStore(link, time.time)
    assert await once.add("key", FOREVER)
    assert not await once.add("key", FOREVER)
    rows = await RedisLearnedStore(link).learn([lesson("ann", "a:x", "film")], 0)
    assert rows is not None
    assert [row[:2] for row in rows.rows] == [("ann", "a:x")]
    runs = RedisRunStore(link, JournalBounds(), "here")
    assert await runs.claim("a", "run", "digest", "ann", b"part") is None
    assert [await runs.claim_call("a", "c1") for _ in range(2)] == [True, False]
    events = {"a": NewEvents([Entry(1, b"event")], ["c1"], [Part(1, 1, b"part")])}
    assert await runs.append(events) == await runs.renew() == []
    await runs.attend("a", 1.0)
    assert await runs.attended_s("a") > 0
    assert (await runs.lapsed(1), await runs.take("a")) == ({}, None)
    await runs.end("a")
    read = await runs.read("a", 0)
    assert read is not None
    assert (read[0].ended, len(read[1])) == (True, 2)


@requirement("EXEC-52", "EXEC-53", "ACCESS-87", "OPS-161", "OPS-192", "OPS-193")
async def test_a_redis_that_dies_is_missed_at_once_and_found_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wicketgate")
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with linked(server.url) as link:
            store, once, words = RedisArtifactStore(link), RedisOnceStore(link, time.time), RedisLearnedStore(link)
            assert await once.add("used", FOREVER)
            assert await store.put("ann", artifact("one")) == "kept"
            server.kill()
            assert await store.put("ann", artifact("two")) == "failed"
            with pytest.raises(ViewFailed):
                await store.get("ann", handle("one"))
            with pytest.raises(NotAdmitted):
                await once.add("other", FOREVER)
            assert [await words.learn([lesson("ann", "a:x", "film")], 0) for _ in range(3)] == [None] * 3
            assert [await store.put("ann", artifact("two")) for _ in range(3)] == ["failed"] * 3
            assert link.measures.fail.degraded(away=False).keys() == {"approvals", "learned_words", "artifacts"}
            assert link.trouble == "cannot be reached"
            assert link.measures.away
            assert link.measures.refused
            # Back by itself, without a caller.
            server.start()
            await until(lambda: not link.measures.away)
            assert link.trouble == ""
            assert link.measures.fail.degraded(away=False) == {}, "nobody has asked since, and it answers"
            assert not await once.add("used", FOREVER), "what was used stays used"
            assert await store.get("ann", handle("one")) == artifact("one")
    said = [record.getMessage() for record in caplog.records if record.name == "wicketgate.storage"]
    assert [line for line in said if "cannot be reached" in line] == [
        f"{server.url} cannot be reached; nothing is kept there until it is back"
    ]
    assert [line for line in said if "is back" in line]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    for line in ("learned words cannot be kept", "nothing that is approved can run", "artifact of 100 bytes not kept"):
        assert sum(line in each for each in errors) == 1, errors


@requirement("EXEC-52")
async def test_a_redis_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            store = RedisArtifactStore(link)
            assert await store.put("ann", artifact("one")) == "kept"
            assert server.process is not None
            os.kill(server.process.pid, signal.SIGSTOP)
            try:
                outcomes = await asyncio.gather(*(store.put("ann", artifact("two")) for _ in range(100)))
                assert set(outcomes) == {"failed"}
                assert link.trouble == "does not answer in time"
                # All waited at the same time, and none twice.
                assert link.measures.waits.total_s < 110 * 2 * WAIT_S
            finally:
                os.kill(server.process.pid, signal.SIGCONT)
            await until(lambda: not link.measures.away)
            assert await store.put("ann", artifact("two")) == "kept"


async def test_a_step_can_be_cancelled_at_any_moment(link: RedisLink) -> None:
    await link.run(lambda client: client.ping())
    for moment in range(20):
        asked = asyncio.create_task(link.run(lambda client: client.ping()))
        for _ in range(moment):
            await asyncio.sleep(0)
        if not asked.done():
            asked.cancel()
            await asyncio.wait([asked])
            assert asked.cancelled(), moment
    assert await link.run(lambda client: client.ping())


@requirement("EXEC-52")
async def test_a_redis_that_is_not_there_yet_is_no_error(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    try:
        async with linked(server.url) as link:
            assert link.trouble
            server.start()
            await until(lambda: not link.trouble)
            await use_everything(link)
    finally:
        server.kill()


@requirement("EXEC-53")
async def test_a_full_redis_keeps_nothing_and_goes_on_reading(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            store = RedisArtifactStore(link)
            assert await store.put("ann", artifact("one")) == "kept"
            await link.run(lambda client: client.config_set("maxmemory", 1))
            assert await store.put("ann", artifact("two")) == "failed"
            assert await store.get("ann", handle("one")) == artifact("one")
            with pytest.raises(NotAdmitted):
                await RedisOnceStore(link, time.time).add("key", FOREVER)
            assert link.trouble == ""
            assert link.measures.errors["full"] == 2


@requirement("OPS-160")
async def test_tls_is_verified_and_a_password_is_given(tmp_path: Path) -> None:
    folder = tmp_path / "certificates"
    folder.mkdir()
    authority = Authority(folder)
    authority.serving("127.0.0.1")
    (pem,) = folder.glob("server-*.pem")
    options = ["--tls-cert-file", str(pem), "--tls-key-file", str(pem), "--tls-ca-cert-file", str(authority.ca_file)]
    options += ["--tls-auth-clients", "no", "--requirepass", PASSWORD]
    with redis_server(tmp_path / "redis", *options, tls=True) as server:
        with_password = server.url.replace("//", f"//:{PASSWORD}@")
        async with linked(with_password, str(authority.ca_file)) as link:
            await use_everything(link)
        async with linked(server.url, str(authority.ca_file)) as link:
            assert link.trouble == "refuses the user, the password or a command"
        async with linked(with_password) as link:
            assert link.trouble == "cannot be reached", "its authority is not trusted"


def rights_of_the_guide(kind: Kind) -> Sequence[str]:
    found = re.findall(
        r"A user of Redis needs `([^`]+)` and, of commands, `([^`]+)`,\s+in a Cluster\s+`([^`]+)`", GUIDE.read_text()
    )
    ((names, commands, of_a_cluster),) = found
    return " ".join((names, commands, of_a_cluster if kind == "cluster" else "")).split()


async def test_a_user_with_the_rights_that_the_guide_names_is_enough(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as admin:
            words = ["on", f">{PASSWORD}", *rights_of_the_guide("single")]
            await admin.run(lambda client: client.execute_command("ACL", "SETUSER", "gate", *words))
            async with linked(server.url.replace("//", f"//gate:{PASSWORD}@")) as link:
                await use_everything(link)
                assert "set appendonly yes" in link.shortfalls[0]
                with pytest.raises(RedisAway):
                    await link.run(lambda client: client.get("other"))
                assert link.trouble, "a right that is missing is told"


@requirement("OPS-162")
async def test_what_the_settings_do_not_promise_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            assert [line.partition(": ")[2] for line in link.shortfalls] == ["set appendonly yes"]
            assert f"storage: {link.shortfalls[0]}" in caplog.text


@requirement("OPS-162")
async def test_a_redis_that_does_not_tell_its_settings_is_used_all_the_same(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--rename-command", "CONFIG", "") as server:
        async with linked(server.url) as link:
            assert link.trouble == ""
            assert "does not tell its settings" in link.shortfalls[0]
            await use_everything(link)


@requirement("OPS-160", "OPS-163")
async def test_every_step_stays_within_a_slot_of_a_cluster(tmp_path: Path) -> None:
    with redis_server(tmp_path, "--cluster-enabled", "yes", "--cluster-port", str(free_port())) as server:
        async with linked(server.url) as admin:
            await admin.run(lambda client: client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383))
            await _until_ok(admin)
        async with linked(server.url.replace("redis:", "redis+cluster:")) as link:
            await use_everything(link)
            small = RedisArtifactStore(link, max_bytes=2_000)
            for name in ("two", "three", "four"):
                assert await small.put("bob", artifact(name)) == "kept"
            assert await small.get("bob", handle("two")) is None


async def _until_ok(link: RedisLink) -> None:
    while (await link.run(lambda client: client.execute_command("CLUSTER INFO")))["cluster_state"] != "ok":
        await asyncio.sleep(0.02)


@requirement("OPS-160", "ACCESS-88", "CHAT-117")
async def test_behind_sentinels_an_approval_is_used_once_a_replica_has_it_and_a_failover_brings_none_back(
    tmp_path: Path,
) -> None:
    login = ("--requirepass", PASSWORD, "--masterauth", PASSWORD)
    master = RedisServer(tmp_path / "master", "--repl-diskless-sync-delay", "0", *login)
    replica = RedisServer(tmp_path / "replica", "--replicaof", f"127.0.0.1 {master.port}", *login)
    watch = (
        f"sentinel monitor gate 127.0.0.1 {master.port} 1",
        f"sentinel auth-pass gate {PASSWORD}",
        "sentinel down-after-milliseconds gate 300",
        "sentinel failover-timeout gate 3000",
    )
    sentinel = RedisServer(tmp_path / "sentinel", *watch, sentinel=True)
    servers = (master, replica, sentinel)
    try:
        master.start()
        replica.start()
        async with linked(replica.url.replace("//", f"//:{PASSWORD}@")) as link:
            await _until_synchronized(link)
        sentinel.start()
        async with linked(f"redis+sentinel://:{PASSWORD}@127.0.0.1:{sentinel.port}/gate") as link:
            once = RedisOnceStore(link, time.time)
            # The replica counts once its master has heard of what it has, a second after it has it at the latest.
            await _add_one(once, "first")
            await use_everything(link)
            runs = RedisRunStore(link, JournalBounds(), "here")
            assert await runs.claim("b", "run", "digest", "ann") is None
            assert await runs.claim_call("b", "before")
            replica.kill()
            with pytest.raises(NotAdmitted):
                await once.add("nobody else has it", FOREVER)
            with pytest.raises(StoreAway):
                await runs.claim_call("b", "nobody else has it")
            with pytest.raises(StoreAway):
                await runs.claim("c", "run", "digest", "ann")
            assert link.trouble == "", "it answers"
            replica.start()
            last = await _add_one(once, "before")
            master.kill()
            await _until_back(once, last)
            while True:
                with contextlib.suppress(StoreAway):
                    assert not await runs.claim_call("b", "before")
                    break
                await asyncio.sleep(0.05)
    finally:
        for server in servers:
            server.kill()


async def _until_synchronized(link: RedisLink) -> None:
    while (await link.run(lambda client: client.info("replication")))["master_link_status"] != "up":
        await asyncio.sleep(0.02)


async def _add_one(once: RedisOnceStore, name: str) -> str:
    """Adds keys until one is taken, and returns that one: what was refused may be kept all the same."""
    for number in itertools.count():
        with contextlib.suppress(NotAdmitted):
            assert await once.add(f"{name} {number}", FOREVER)
            return f"{name} {number}"
        await asyncio.sleep(0.05)
    raise AssertionError


async def _until_back(once: RedisOnceStore, used: str) -> None:
    """Waits for the new master, which knows what was used."""
    while True:
        with contextlib.suppress(NotAdmitted):
            assert not await once.add(used, FOREVER)
            return
        await asyncio.sleep(0.05)

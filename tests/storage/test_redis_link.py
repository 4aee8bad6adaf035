"""The link to a Redis that dies, stops, comes back, fails over, or wants TLS, a password or certain rights."""

import asyncio
import contextlib
import itertools
import logging
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.storage.test_redis_store import BOUND_S, GUIDE, linked, use_everything
from tests.support.artifacts import artifact, handle
from tests.support.certificates import Authority
from tests.support.redis import PASSWORD, RedisServer, redis_server
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.errors import NotAdmitted, ViewFailed
from wicketgate.storage.artifacts import MAX_BYTES, StoredArtifacts
from wicketgate.storage.redis.client import WAIT_S, RedisAway, RedisLink
from wicketgate.storage.redis.store import RedisStore
from wicketgate.storage.runs import Batch, HeldRun, JournalBounds, SharedRuns
from wicketgate.storage.store import Kind as RowKind
from wicketgate.storage.store import Put, Signal, StoreUnavailable
from wicketgate.storage.used_approvals import UsedApprovals

FOREVER = 4_000_000_000.0


def used_in(link: RedisLink) -> UsedApprovals:
    """Used approvals, as a process knows them that has used none."""
    return UsedApprovals(RedisStore(link), time.time, link.measures)


def artifacts_in(link: RedisLink, max_bytes: int = MAX_BYTES) -> StoredArtifacts:
    return StoredArtifacts(RedisStore(link), max_bytes, fail=link.measures.fail)


@requirement("EXEC-52", "EXEC-53", "ACCESS-87", "OPS-161", "OPS-192", "OPS-193")
async def test_a_redis_that_dies_is_missed_at_once_and_found_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wicketgate")
    with redis_server(tmp_path, "--appendonly", "yes", "--appendfsync", "always") as server:
        async with linked(server.url) as link:
            store, once = artifacts_in(link), used_in(link)
            assert await once.add("used", FOREVER)
            assert await store.put("ann", artifact("one")) == "kept"
            server.kill()
            assert await store.put("ann", artifact("two")) == "failed"
            with pytest.raises(ViewFailed):
                await store.get("ann", handle("one"))
            with pytest.raises(NotAdmitted):
                await once.add("other", FOREVER)
            assert [await store.put("ann", artifact("two")) for _ in range(3)] == ["failed"] * 3
            assert link.measures.fail.degraded(away=False).keys() == {"approvals", "artifacts"}
            assert link.trouble == "cannot be reached"
            assert link.measures.away
            assert link.measures.refused
            # Back by itself, without a caller.
            server.start()
            await until(lambda: not link.measures.away)
            assert link.trouble == ""
            assert link.measures.fail.degraded(away=False) == {}, "nobody has asked since, and it answers"
            assert not await used_in(link).add("used", FOREVER), "what was used stays used"
            assert await store.get("ann", handle("one")) == artifact("one")
    said = [record.getMessage() for record in caplog.records if record.name == "wicketgate.storage"]
    assert [line for line in said if "cannot be reached" in line] == [
        f"{server.url} cannot be reached; nothing is stored there until it is available again"
    ]
    assert [line for line in said if "is available again after" in line]
    errors = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    for line in ("nothing that is approved can run", "artifact of 100 bytes not kept"):
        assert sum(line in each for each in errors) == 1, errors


@requirement("EXEC-52")
async def test_a_redis_that_stands_still_holds_nobody_up(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            store = artifacts_in(link)
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
            await use_everything(RedisStore(link))
    finally:
        server.kill()


@requirement("EXEC-53")
async def test_a_full_redis_keeps_nothing_and_goes_on_reading(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as link:
            store = artifacts_in(link)
            assert await store.put("ann", artifact("one")) == "kept"
            await link.run(lambda client: client.config_set("maxmemory", 1))
            assert await store.put("ann", artifact("two")) == "failed"
            assert await store.get("ann", handle("one")) == artifact("one")
            with pytest.raises(NotAdmitted):
                await used_in(link).add("key", FOREVER)
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
            await use_everything(RedisStore(link))
        async with linked(server.url, str(authority.ca_file)) as link:
            assert link.trouble == "refuses the user, the password or a command"
        async with linked(with_password) as link:
            assert link.trouble == "cannot be reached", "its authority is not trusted"


async def test_a_user_with_the_rights_that_the_guide_names_is_enough(tmp_path: Path) -> None:
    with redis_server(tmp_path) as server:
        async with linked(server.url) as admin:
            ((names, commands),) = re.findall(
                r"A Redis user needs `([^`]+)` and the commands\s+`([^`]+)`", GUIDE.read_text()
            )
            words = ["on", f">{PASSWORD}", *names.split(), *commands.split()]
            await admin.run(lambda client: client.execute_command("ACL", "SETUSER", "gate", *words))
            async with linked(server.url.replace("//", f"//gate:{PASSWORD}@")) as link:
                await use_everything(RedisStore(link))
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
            await use_everything(RedisStore(link))


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
            once = used_in(link)
            # The replica counts once its master has heard of what it has, a second after it has it at the latest.
            await _add_one(once, "first")
            await use_everything(RedisStore(link))
            runs = SharedRuns(RedisStore(link), "here", JournalBounds())
            run = await runs.claim("b", "run", "digest", "ann")
            assert isinstance(run, HeldRun)
            await runs.write(run, Batch(claims=["before"]), durable=True)
            replica.kill()
            await RedisStore(link).step([Put(RowKind("free"), "not durable", b"")])
            with pytest.raises(NotAdmitted):
                await once.add("nobody else has it", FOREVER)
            with pytest.raises(StoreUnavailable):
                await runs.write(run, Batch(claims=["nobody else has it"]), durable=True)
            with pytest.raises(StoreUnavailable):
                await runs.claim("c", "run", "digest", "ann")
            assert link.trouble == "", "it answers"
            replica.start()
            last = await _add_one(once, "before")
            store = RedisStore(link)
            async with store.listen("topic") as changed:
                master.kill()
                await _until_back(link, last)
                await store.step([Signal("topic")])
                await changed.wait(BOUND_S)
            await store.aclose()
            there = SharedRuns(RedisStore(link), "there", JournalBounds())
            await RedisStore(link).beat("here", mark_s=0)

            async def taken() -> Any:
                with contextlib.suppress(StoreUnavailable):
                    return await there.take("b")

            assert "before" in (await until(taken)).open_calls
    finally:
        for server in servers:
            server.kill()


async def _until_synchronized(link: RedisLink) -> None:
    await until(
        lambda: link.run(lambda client: client.info("replication")),
        lambda info: info["master_link_status"] == "up",
    )


async def _add_one(once: UsedApprovals, name: str) -> str:
    """Adds keys until one is taken, and returns that one: what was refused may be kept all the same."""
    numbers = itertools.count()

    async def added() -> str:
        key = f"{name} {next(numbers)}"
        with contextlib.suppress(NotAdmitted):
            assert await once.add(key, FOREVER)
            return key
        return ""

    key: str = await until(added, pause_s=0.05)
    return key


async def _until_back(link: RedisLink, used: str) -> None:
    """Waits for the new master, which knows what was used."""

    async def back() -> bool:
        with contextlib.suppress(NotAdmitted):
            assert not await used_in(link).add(used, FOREVER)
            return True
        return False

    await until(back, pause_s=0.05)

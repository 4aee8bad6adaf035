"""Services with other ``auth.seal_keys``, or with none, on one store: production and staging, by mistake."""

import signal
import sqlite3
from pathlib import Path
from typing import Any

from tests.support.process import Program, program
from tests.support.redis import redis_server
from tests.support.requirement import requirement
from tests.support.served import address, write_config


def ring_config(folder: Path, url: str, *seal_keys: str, **sections: Any) -> Path:
    """Writes a configuration with keys of 40 such letters each."""
    folder.mkdir(exist_ok=True)
    file = write_config(folder, storage={"url": url}, **sections)
    if seal_keys:
        keys = [key * 40 for key in seal_keys]
        file.write_text(file.read_text().replace("auth:\n", f"auth:\n  seal_keys: {keys}\n", 1))
    return file


def serve(file: Path, *more: str) -> Any:
    return program("app", "serve", "--config", str(file), "--port", "0", *more)


async def refusal(running: Program) -> str:
    """The only line of a start that was refused."""
    assert await running.ended() == 1
    (line,) = running.stderr.strip().splitlines()
    assert "ready on" not in line
    return line


@requirement("ACCESS-330")
async def test_a_service_with_other_seal_keys_does_not_start_on_the_store_of_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with serve(ring_config(tmp_path / "a", url, "a")) as running:
        await address(running)
        for keys, more in ((["b"], ["--workers", "2"]), ([], [])):
            async with serve(ring_config(tmp_path / "b", url, *keys), *more) as other:
                assert "belongs to a gate with other auth.seal_keys" in await refusal(other)
                assert "Traceback" not in other.stdout
        # With the same ring it starts.
        async with serve(ring_config(tmp_path / "c", url, "a")) as third:
            await address(third)
        assert await running.stop() == 0
    # The operator has removed the check value, as docs/operations/storage.md says.
    with sqlite3.connect(tmp_path / "store.db") as disk:
        disk.execute("DELETE FROM row WHERE kind = 'seal_ring'")
    async with serve(ring_config(tmp_path / "b", url, "b")) as other:
        await address(other)


@requirement("ACCESS-331")
async def test_without_seal_keys_a_process_starts_again_in_order_and_after_a_kill(
    tmp_path: Path, redis_url: str
) -> None:
    file = ring_config(tmp_path / "a", redis_url)
    async with serve(file) as running:
        await address(running)
        assert await running.stop() == 0
    async with serve(file) as running:
        await address(running)
        assert "waiting up to" not in running.stdout
        running.process.send_signal(signal.SIGKILL)
        await running.ended()
    async with serve(file) as running:
        await address(running)
        assert "waiting up to 8 s" in running.stdout
        assert await running.stop() == 0


@requirement("ACCESS-331")
async def test_workers_without_seal_keys_share_a_random_one_and_another_process_does_not_start(tmp_path: Path) -> None:
    file = ring_config(tmp_path / "a", f"sqlite:///{tmp_path}/store.db")
    for last in (False, True):
        async with serve(file, "--workers", "2") as running:
            await address(running)
            assert "waiting up to" not in running.stdout
            if last:
                async with serve(file) as other:
                    assert "another process without common seal keys" in await refusal(other)
                    assert "waiting up to 8 s" in other.stdout
            assert await running.stop() == 0


@requirement("ACCESS-333")
async def test_a_store_that_is_unavailable_at_the_start_ends_a_foreign_service_when_it_is_back(tmp_path: Path) -> None:
    with redis_server(tmp_path / "redis", "--appendonly", "yes") as redis:
        async with serve(ring_config(tmp_path / "a", redis.url, "a")) as running:
            await address(running)
            assert await running.stop() == 0
        redis.kill()
        async with (
            serve(ring_config(tmp_path / "b", redis.url, "b")) as foreign,
            serve(ring_config(tmp_path / "c", redis.url, "a")) as own,
        ):
            await address(foreign)
            await address(own)
            assert "auth.seal_keys are checked when the store is available" in foreign.stdout
            redis.start()
            assert await foreign.ended() == 1
            assert "belongs to a gate with other auth.seal_keys" in foreign.stderr.strip().splitlines()[-1]
            assert await own.stop() == 0

"""The store of logins that a configuration names, and the keys that it needs."""

from pathlib import Path

import pytest

from tests.support.redis import RedisServer, redis_server
from tests.support.requirement import requirement
from wicketgate.config.runtime import make_redis_link, make_store
from wicketgate.config.settings import Settings
from wicketgate.config.user_logins import make_sealed_rows
from wicketgate.errors import ConfigError
from wicketgate.login.sealed_rows import Row
from wicketgate.storage.memory import MemoryStore

KEYS = {"seal_keys": ["k" * 40]}


def settings(url: str, auth: dict[str, list[str]]) -> Settings:
    return Settings.model_validate({"storage": {"url": url}, "auth": auth})


@requirement("ACCESS-153")
@pytest.mark.parametrize("kind", ["memory", "file", "redis"])
async def test_logins_are_kept_where_everything_is(tmp_path: Path, kind: str) -> None:
    server: RedisServer
    with redis_server(tmp_path) as server:
        url = {"memory": "memory://", "file": f"sqlite:///{tmp_path / 's.db'}", "redis": server.url}[kind]
        auths = [KEYS] if kind != "memory" else [KEYS, {}]
        for auth in auths:
            configured = settings(url, auth)
            link = make_redis_link(configured)
            store = make_store(configured.storage, redis=link)
            assert await make_sealed_rows(configured, store).write(Row("grant", "k", "ann", {"a": 1}, 1))
            await store.aclose()
            if kind != "memory":
                store = make_store(configured.storage, redis=link)
                found = await make_sealed_rows(configured, store).read("grant", "k")
                assert found is not None
                assert found.value == {"a": 1}
                await store.aclose()
            if link is not None:
                await link.aclose()


@requirement("ACCESS-153")
@pytest.mark.parametrize("kind", ["file", "redis"])
def test_a_store_that_outlives_the_process_needs_keys(tmp_path: Path, kind: str) -> None:
    url = {"file": f"sqlite:///{tmp_path / 's.db'}", "redis": "redis://127.0.0.1:1"}[kind]
    configured = settings(url, {})
    with pytest.raises(ConfigError, match=r"auth\.seal_keys"):
        make_sealed_rows(configured, MemoryStore())

"""One Redis for all tests of a worker that share it; each test has names of its own."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.redis import RedisServer, redis_server
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.names import Names
from wicketgate.storage.redis.url import read_url


@pytest.fixture(scope="session")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture
async def link(redis: RedisServer) -> AsyncIterator[RedisLink]:
    made = RedisLink(read_url(redis.url), names=Names(secrets.token_hex(8)))
    yield made
    await made.aclose()

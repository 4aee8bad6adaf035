"""A clock of the test for the scripts of the store in Redis."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from redis import Redis

from tests.support.redis import RedisServer
from wicketgate.storage.redis import store, store_scripts
from wicketgate.storage.redis.lanes import Script


@contextmanager
def scripts_with_a_clock() -> Iterator[None]:
    """Within the block the scripts read the clock that ``RedisTime`` sets."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STEP", "BEAT", "ALIVE", "COUNT", "PLACES"):
            text: str = getattr(store_scripts, name).text
            patch.setattr(store, name, Script(text.replace("call('TIME')", "call('HMGET', 'clock', 's', 'us')")))
        yield


class RedisTime:
    """Sets the clock to *now*, in seconds, and moves the expiry of all keys along with it."""

    def __init__(self, server: RedisServer, now: Callable[[], float]) -> None:
        self._client = Redis(port=server.port)
        self._now = now
        self.passed(0)

    def passed(self, seconds: float) -> None:
        """*now* gives a time that is *seconds* later."""
        now = self._now()
        whole = int(now)
        parts = {"s": whole, "us": int(round(now - whole, 6) * 1_000_000)}
        self._client.hset("clock", mapping=parts)  # type: ignore[arg-type]
        if seconds >= 0.05:
            for key in self._client.scan_iter("wg1:*", count=1_000):
                life: Any = self._client.pttl(key)
                if 0 <= life <= seconds * 1_000:
                    self._client.unlink(key)
                elif life >= 0:
                    self._client.pexpire(key, life - int(seconds * 1_000))

    def close(self) -> None:
        self._client.close()

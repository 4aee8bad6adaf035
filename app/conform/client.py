"""How the engine is asked: plain HTTP, one exchange at a time, with everything that came back kept as it came."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from app.conform.transcript import Exchange, Stream, read_stream

PATH = "/engine/chat"
MAX_BODY_BYTES = 64 * 1024 * 1024
_ENDLESS = 10
"""A stream that goes on for so many times the longest silence is taken for one that has no end."""


@dataclass
class EngineClient:
    """*exchanges* grows with every request; the grammar is judged over all of them at the end. *timeout_s* is the
    longest silence that is waited."""

    url: str
    key: str | None
    timeout_s: float
    exchanges: list[Exchange] = field(default_factory=list)
    _http: httpx.AsyncClient | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["EngineClient"]:
        async with httpx.AsyncClient(timeout=self.timeout_s, trust_env=False, follow_redirects=False) as self._http:
            yield self

    async def chat(self, label: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Exchange:
        """Ask as a gateway would, with the credential."""
        return await self.send(label, json.dumps(body).encode(), headers)

    async def send(
        self,
        label: str,
        content: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        path: str = PATH,
        authorized: bool = True,
    ) -> Exchange:
        """Read to the end, and give whatever it was; nothing is raised for what an engine may do."""
        assert self._http is not None
        sent = (
            {"Content-Type": "application/json"} | (self._authorization() if authorized else {}) | dict(headers or {})
        )
        status, got, body, reads, broken = 0, httpx.Headers(), bytearray(), 0, ""
        try:
            async with (
                asyncio.timeout(_ENDLESS * self.timeout_s),
                self._http.stream(method, self.url + path, content=content, headers=sent) as response,
            ):
                status, got = response.status_code, response.headers
                async for piece in response.aiter_bytes():
                    body += piece
                    reads += 1
                    if len(body) > MAX_BODY_BYTES:
                        broken = f"more than {MAX_BODY_BYTES} bytes"
                        break
        except TimeoutError:
            broken = f"not at its end after {_ENDLESS * self.timeout_s:g} s"
        except httpx.HTTPError as error:
            broken = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        exchange = Exchange(
            label, status, {name.lower(): value for name, value in got.items()}, bytes(body), reads, broken
        )
        self.exchanges.append(exchange)
        return exchange

    async def hang_up(self, body: Mapping[str, Any]) -> bool:
        """Begin to read a stream and leave after its first bytes. False if there was none."""
        assert self._http is not None
        headers = {"Content-Type": "application/json"} | self._authorization()
        try:
            async with self._http.stream("POST", self.url + PATH, json=body, headers=headers) as response:
                async for _ in response.aiter_raw():
                    return response.status_code == 200
        except httpx.HTTPError:
            pass
        return False

    def streams(self) -> list[Stream]:
        return [read_stream(exchange) for exchange in self.exchanges if exchange.is_stream]

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

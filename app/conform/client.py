"""The HTTP client of the checker: one exchange at a time, each kept as it came."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from app.conform.transcript import EventStream, Transcript, read_stream

PATH = "/engine/chat"
MAX_ALL_BYTES = 256 * 1024 * 1024
"""Of all answers together."""
# A stream that lasts this many times the longest silence counts as endless.
_ENDLESS = 10


class TooMuch(Exception):
    """The engine sent more than is read in one examination."""


class EngineClient:
    """Sends requests to one engine. *transcripts* grows with every request; the grammar is judged over all of them at
    the end. *timeout_s* is the longest silence that is accepted."""

    def __init__(self, http: httpx.AsyncClient, url: str, key: str | None, timeout_s: float) -> None:
        self._http = http
        self.url = url
        self.key = key
        self._limit_s = _ENDLESS * timeout_s
        self._bytes_left = MAX_ALL_BYTES
        self.transcripts: list[Transcript] = []

    async def send(
        self,
        label: str,
        content: Any,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        path: str = PATH,
        authorized: bool = True,
    ) -> Transcript:
        """Send *content* (bytes as they are, everything else as JSON) and read the answer to its end.

        Returns what an engine does, a broken answer too. Raises TooMuch if all answers together are beyond
        ``MAX_ALL_BYTES``.
        """
        status, got, body, reads, broken = 0, httpx.Headers(), bytearray(), 0, ""
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        try:
            async with (
                asyncio.timeout(self._limit_s),
                self._http.stream(
                    method, self.url + path, content=raw, headers=self._headers(authorized) | dict(headers or {})
                ) as response,
            ):
                status, got = response.status_code, response.headers
                async for piece in response.aiter_bytes():
                    body += piece
                    reads += 1
                    if len(body) > self._bytes_left:
                        raise TooMuch
        except TimeoutError:
            broken = f"not at its end after {self._limit_s:g} s"
        except httpx.HTTPError as error:
            broken = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        names = {name.lower(): value for name, value in got.items()}
        self._bytes_left -= len(body)
        self.transcripts.append(Transcript(label, status, names, bytes(body), reads, broken))
        return self.transcripts[-1]

    async def hang_up(self, body: Mapping[str, Any]) -> bool:
        """Begin to read a stream and leave after its first bytes. False if there was none."""
        try:
            async with self._http.stream("POST", self.url + PATH, json=body, headers=self._headers(True)) as response:
                async for _ in response.aiter_raw():
                    return response.status_code == 200
        except httpx.HTTPError:
            pass
        return False

    def streams(self) -> list[EventStream]:
        return [read_stream(transcript) for transcript in self.transcripts if transcript.is_stream]

    def _headers(self, authorized: bool) -> dict[str, str]:
        bearer = {"Authorization": f"Bearer {self.key}"} if authorized and self.key else {}
        return {"Content-Type": "application/json"} | bearer

"""The engine under examination: one exchange at a time, each kept as it came."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

from app.conform.transcript import EventStream, Transcript, excerpt

PATH = "/engine/chat"
MAX_ALL_BYTES = 256 * 1024 * 1024
"""Of all answers together."""


class TooMuch(Exception):
    """The engine sent more than is read in one examination."""


@dataclass(eq=False)
class EngineClient:
    """Sends requests to one engine. *transcripts* grows with every request; the grammar is judged over all of them at
    the end. *plain* and *again* are the answers to the bare *prompt*, with which later answers are compared."""

    http: httpx.AsyncClient
    url: str
    key: str | None
    prompt: str
    tool_prompt: str | None
    transcripts: list[Transcript] = field(default_factory=list)
    plain: EventStream = field(init=False)
    again: EventStream = field(init=False)

    async def send(
        self, content: Any, headers: Mapping[str, str] = {}, method: str = "POST", path: str = PATH, leave: bool = False
    ) -> Transcript:
        """Send *content* (bytes as they are, everything else as JSON) and read the answer to its end. An empty header
        is not sent; ``{key}`` in one is the credential. With *leave* it reads the first bytes of an answer,
        which is not kept.

        Returns what an engine does, a broken answer too. Raises TooMuch if all answers together are beyond
        ``MAX_ALL_BYTES``.
        """
        status, got, body, broken = 0, httpx.Headers(), bytearray(), ""
        raw = content if isinstance(content, bytes) else json.dumps(content).encode()
        given = {"Content-Type": "application/json", "Authorization": "Bearer {key}" if self.key else "", **headers}
        sent = {name: value.replace("{key}", self.key or "") for name, value in given.items() if value}
        left = MAX_ALL_BYTES - sum(len(each.body) for each in self.transcripts)
        try:
            async with self.http.stream(method, self.url + path, content=raw, headers=sent) as response:
                status, got = response.status_code, response.headers
                async for piece in response.aiter_bytes():
                    body += piece
                    if len(body) > left:
                        raise TooMuch
                    if leave:
                        break
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            broken = f"{type(error).__name__}{f': {error}' if str(error) else ''}"
        shown = f" with {headers}" if headers else ""
        label = f"{method} {path} {excerpt(raw[:200].decode(errors='replace'))}{shown}"
        answer = Transcript(label, status, got, bytes(body), broken)
        if not leave:
            self.transcripts.append(answer)
        return answer

"""HTTP as MCP's transports use it: one URL of a server, requests to it, and streams of messages from it.

Redirects are followed within the origin only and with the method kept; a 401 renews the gateway's own credential once.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from wicketgate.answer_room import AnswerHold
from wicketgate.errors import ConnectRequired, ProviderError, ScopesNeeded, UpstreamUnavailable
from wicketgate.heavy_work import VERY_LARGE_BYTES
from wicketgate.net import Credentials, HttpClient, NeverSent, NoAnswer, Target, body_of
from wicketgate.net.challenge import refusal_of
from wicketgate.net.client import CONNECT_S, redirect_of, send_authorized
from wicketgate.net.outgoing import AnswerTimedOut, AnswerUndecodable, NotHttp, trouble_of
from wicketgate.net.sse import SseDecoder, SseEvent
from wicketgate.net.transport import read_bounded
from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.mcp.call import (
    CONNECTION_LOST,
    Gone,
    Malformed,
    Status,
    Unfinished,
    no_answer,
    too_large,
)
from wicketgate.upstreams.mcp.grant_credentials import GrantCredentials

JSON = "application/json"
EVENTS = "text/event-stream"

FAILURES = (Gone, Malformed, UpstreamUnavailable, ConnectRequired, ScopesNeeded)
"""The exceptions of a request over HTTP; the last three are for a credential that cannot be had."""

_ACCEPTED = {"Content-Type": JSON, "Accept": f"{JSON}, {EVENTS}"}
NOTIFY_S = 10.0
_MAX_NOTIFYING = 256
_ENDING_S = 1.0
"""Seconds for which an answer may go on that nobody reads: most servers send the end of a stream in a packet of its
own, behind its message."""
_MAX_REDIRECTS = 3
_MAX_SNIFFED = 4096
_FOLLOWED = {"POST": (307, 308), "DELETE": (307, 308), "GET": (301, 302, 307, 308)}


class Endpoint:
    """*headers* go with every request. *credentials* replace an ``Authorization`` among them."""

    def __init__(
        self, http: HttpClient, url: str, headers: Mapping[str, str], credentials: Credentials | None = None
    ) -> None:
        self._http = http
        self._url = url
        self._credentials = credentials
        own = {name: value for name, value in headers.items() if name.lower() != "authorization" or not credentials}
        self._headers = {**_ACCEPTED, **own}
        # A user in the URL is sent too, by Target.
        has_user = "@" in url.partition("://")[2].partition("/")[0]
        self.authorized = has_user or credentials is not None or any(name.lower() == "authorization" for name in own)
        # By method; others than POST may have a place of their own.
        self._places: dict[str, tuple[str, Target]] = {}
        self._notifying = 0

    async def send(self, method: str, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """The answer, which the caller closes. Raises Gone, Malformed, and UpstreamUnavailable or ConnectRequired
        without a credential."""

        async def send(authorization: str | None) -> httpx.Response:
            own = headers if authorization is None else {**headers, "Authorization": authorization}
            return await self._followed(method, content, own)

        try:
            if self._credentials is None:
                return await self._followed(method, content, headers)
            response = await send_authorized(self._credentials, send)
        except httpx.RequestError as error:
            raise failure_of(error, self._url) from None
        if response.status_code == 401 and isinstance(self._credentials, GrantCredentials):
            await response.aclose()
            await self._credentials.refused()
        return response

    def no_answer(self, response: httpx.Response, name: str, transport: str) -> Status:
        """The failure that *response* is by its status, at the server *name*."""
        refused = refusal_of(response.status_code, response.headers)
        logs_in = refused is not None and refused.resource_metadata
        return no_answer(
            response.status_code,
            response.headers.get("retry-after", ""),
            authorized=self.authorized,
            transport=transport,
            login=name if logs_in else "",
            scopes=refused.named_scopes if refused is not None and refused.lacks_scopes else None,
        )

    async def notify(self, message: Mapping[str, Any], headers: Mapping[str, str]) -> None:
        """Send a message that gets no answer. It is dropped if it cannot be sent, or too many others are under way."""
        if self._notifying >= _MAX_NOTIFYING:
            return
        self._notifying += 1
        try:
            with suppress(*FAILURES, TimeoutError):
                async with asyncio.timeout(NOTIFY_S):
                    await leave(await self.send("POST", wire.encode(message), headers))
        finally:
            self._notifying -= 1

    def at(self, reference: str) -> "Endpoint | None":
        """Another URL of the same origin, with the same headers and credentials; None if it lies elsewhere."""
        try:
            here, there = urlsplit(self._url), urlsplit(urljoin(self._url, reference))
            if (here.scheme, here.hostname, here.port) != (there.scheme, there.hostname, there.port):
                return None
        except ValueError:
            return None
        url = there._replace(netloc=here.netloc).geturl()  # with the user of our own URL
        return Endpoint(self._http, url, self._headers, self._credentials)

    async def _followed(self, method: str, content: bytes, headers: Mapping[str, str]) -> httpx.Response:
        known = self._places.get(method)
        url, target = known or (self._url, Target(method, self._url, self._headers))
        asked = {url}
        while True:
            response = await self._http.transport.send(target, content, headers, connect_s=CONNECT_S)
            onward = redirect_of(url, response) if response.status_code in _FOLLOWED[method] else None
            if onward is None:
                break
            await response.aclose()
            if onward in asked or len(asked) > _MAX_REDIRECTS:
                raise Malformed("redirects again and again")
            asked.add(onward)
            url, target = onward, Target(method, onward, self._headers)
        if known is None or len(asked) > 1:
            if method == "POST" and url != self._url:
                # After a redirected POST all methods use the new URL; after a redirected GET only GET does.
                self._url = url
                self._places.clear()
            self._places[method] = url, target
        return response


class EventStream:
    """The events of one answer, each within *max_bytes*. *last_id*: of the stream that this one resumes. A large event
    is read when *hold* has room for it."""

    def __init__(
        self, response: httpx.Response, max_bytes: int, last_id: str = "", hold: AnswerHold | None = None
    ) -> None:
        self.hold = hold
        if hold is not None:
            hold.end_by = inf  # an event of a stream that this one resumes is not read any more
        self._body = body_of(response)
        self._decoder = SseDecoder(max_bytes, max_bytes)
        self._decoder.last_id = last_id
        self._max_bytes = max_bytes

    @property
    def last_id(self) -> str:
        """The id of the last event that had one; empty if none had."""
        return self._decoder.last_id

    @property
    def retry_s(self) -> float | None:
        """The server's wish for the pause before a reconnection."""
        return None if self._decoder.retry_ms is None else self._decoder.retry_ms / 1000

    def finish(self) -> None:
        """Leave the stream, of which nothing more is wanted; it may end by itself shortly (UP-200)."""
        self._body.finish(_ENDING_S)

    async def read(self) -> list[SseEvent] | None:
        """The events that the next piece completed; None at the end. Raises Gone and Malformed."""
        try:
            if self.hold is not None:
                if self.hold.end_by == inf and self._decoder.open_bytes > VERY_LARGE_BYTES:
                    await self.hold.take(self._max_bytes)
                self._body.watch(self.hold.end_by)
            data = await self._body.read()
            events = list(self._decoder.feed(data)) if data else None
            if self.hold is not None and self._decoder.open_bytes <= VERY_LARGE_BYTES:
                self.hold.shrink(max((len(event.data) for event in events or ()), default=0))
            return events
        except ProviderError:
            raise too_large(self._max_bytes) from None
        except TimeoutError:
            raise Unfinished from None
        except httpx.RequestError as error:
            raise failure_of(error) from None


async def leave(response: httpx.Response) -> None:
    """Close an answer whose body is not wanted, though it may still be on its way (UP-200)."""
    body_of(response).finish(_ENDING_S)
    await response.aclose()


def kind_of(response: httpx.Response) -> str:
    """The media type of an answer, without parameters."""
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


async def body_within(response: httpx.Response, max_bytes: int, hold: AnswerHold | None = None) -> bytearray:
    """The whole body; a large one is read when *hold* has room for it. Raises Malformed if it is larger, and Gone."""
    try:
        data, cut = await read_bounded(response, max_bytes, hold)
    except httpx.RequestError as error:
        raise failure_of(error) from None
    if cut:
        raise too_large(max_bytes)
    return data


async def beginning_of(response: httpx.Response) -> bytes:
    """The first bytes of an answer that is not MCP; as many as came before it broke off."""
    try:
        data, _ = await read_bounded(response, _MAX_SNIFFED)
    except httpx.RequestError:
        return b""
    return bytes(data)


def failure_of(error: httpx.RequestError, url: str = "") -> Gone | Malformed:
    """*url* is where the request was sent; empty for an answer that broke off."""
    trouble = trouble_of(error)
    match error:
        case AnswerUndecodable():
            return Malformed("gave an answer in a content coding that was not asked for")
        case AnswerTimedOut() if not url:
            return Unfinished()
        case _ if isinstance(error, NeverSent):
            return Gone(error.why, carried=False, mend=trouble.mend_for("url"))
        case NotHttp() | NoAnswer() if url:
            # Over TLS it is no question of the scheme any more.
            mend = trouble.mend_for("url") if url.startswith("http://") else ""
            return Gone(trouble.why, carried=True, mend=mend)
    return Gone(CONNECTION_LOST, carried=True)

"""Sends the requests of a login over HTTP. No server and no issuer can make the gate request an address of its choice.

https only, public addresses only, and the connection goes to the address that was checked. Redirects are checked like
any URL and followed for GET only; answers are bounded in size and time. URLs from the operator are used unchanged.
``Recent`` throttles questions to an issuer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Generic
from urllib.parse import urljoin, urlsplit

import httpx

from wicketgate.login.discovery import is_web_url
from wicketgate.login.steps import Answer, Distrusted, IssuerAway, NotOffered, Request, Steps, T
from wicketgate.net.challenge import Refusal, refusal_of
from wicketgate.net.client import HttpClient, fetch, origin
from wicketgate.net.guard import Guard, is_loopback
from wicketgate.net.outgoing import (
    SPEAKS_TLS,
    AddressRefused,
    Outgoing,
    Trouble,
    shown_origin,
    told,
    trouble_of,
    wants_tls,
)

FRESH_S = 30.0
_FAILED_S = 5.0
_MAX_BYTES = 256 * 1024
_READ_S = 5.0
_TOKEN_S = 10.0
_MAX_REDIRECTS = 3
_STREAM = "text/event-stream"
_REDIRECTS = (301, 302, 303, 307, 308)


class Carrier:
    """*own* are URLs that the operator wrote: their origins are asked freely. If one of them is on this machine, others
    may be. *private* are further hosts that the operator allows. *settings* names the place of each own URL."""

    def __init__(
        self, outgoing: Outgoing, own: Iterable[str] = (), private: Iterable[str] = (), setting: str = "url"
    ) -> None:
        own = [url for url in own if url]
        self._own = {origin(url) for url in own}
        self._setting = setting
        self._guard = Guard(any(is_loopback(urlsplit(url).hostname or "") for url in own), tuple(private))
        self._free = outgoing
        self._guarded = replace(outgoing, guard=self._guard)

    async def run(self, steps: Steps[T]) -> T:
        """Carry *steps* to their end, and return what came of them. Raises their LoginFailure, IssuerAway where a
        request gets no answer, Distrusted for a place that may not be asked."""
        try:
            request = next(steps)
            while True:
                try:
                    answer = await self._carry(request)
                except IssuerAway as away:
                    request = steps.throw(away)
                else:
                    request = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()

    async def _carry(self, request: Request) -> Answer:
        url, bound_s = request.url, _READ_S if request.method == "GET" else _TOKEN_S
        try:
            async with asyncio.timeout(bound_s):
                for _ in range(_MAX_REDIRECTS + 1):
                    answer, onward = await self._once(request, url)
                    if onward is None or request.method != "GET":
                        return answer
                    url = onward
        except AddressRefused:
            raise Distrusted(
                f"{shown_origin(url)} was named, which is not at a public address: if it is yours, name its host in "
                "oauth.private_hosts"
            ) from None
        except (httpx.RequestError, TimeoutError) as error:
            raise IssuerAway(self._told(trouble_of(error), url)) from None
        raise Distrusted(f"{shown_origin(request.url)} redirects again and again")

    async def _once(self, request: Request, url: str) -> tuple[Answer, str | None]:
        # A connection of its own: hours lie between two tokens.
        async with HttpClient(self._rules_for(url)) as http:
            reply = await fetch(http, request.method, url, request.headers, request.body or None, max_bytes=_MAX_BYTES)
        location = reply.headers.get("location")
        onward = urljoin(url, location) if location and reply.status in _REDIRECTS else None
        if wants_tls(reply.status, reply.body):
            raise IssuerAway(self._told(SPEAKS_TLS, url))
        nothing = reply.status in (404, 405) or reply.body.lstrip()[:1] == b"<"
        if nothing and request.method == "POST" and origin(url) in self._own:
            why = f"there is no token server at this path (HTTP status {reply.status})"
            raise NotOffered(told(why, shown_origin(url), f"correct {self._setting}"))
        return Answer(reply.status, reply.body, reply.cut), onward

    async def refusal_at(self, url: str) -> Refusal | None:
        """The refusal of the tool server at *url* to a request without a credential; None if it does not. Raises
        LoginFailure."""
        ping = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
        kinds = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        try:
            async with asyncio.timeout(_TOKEN_S), HttpClient(self._rules_for(url)) as http:
                # The body of a stream may never end.
                reply = await fetch(
                    http, "POST", url, kinds, ping, max_bytes=_MAX_BYTES, unread=lambda kind: kind.startswith(_STREAM)
                )
        except (httpx.RequestError, TimeoutError) as error:
            raise IssuerAway(self._told(trouble_of(error), url)) from None
        return refusal_of(reply.status, reply.headers)

    def _told(self, trouble: Trouble, url: str) -> str:
        """The mend is for what the operator wrote; nobody here can correct what others name."""
        return (
            trouble.told(url, self._setting) if origin(url) in self._own else told(trouble.why, shown_origin(url), "")
        )

    def _rules_for(self, url: str) -> Outgoing:
        """Raises Distrusted for a URL that may not be asked at all."""
        if not is_web_url(url):
            raise Distrusted("a URL was named that is no http or https URL")
        place = origin(url)
        if place in self._own:
            return self._free
        if not self._guard.allows_url(place[0], place[1]):
            raise Distrusted(f"{shown_origin(url)} was named, which is not https")
        return self._guarded


class Recent(Generic[T]):
    """The answer of *ask* now or a moment ago: those who come together wait for one, and a failure is not tried again
    at once either. *clock* is monotonic, in seconds."""

    def __init__(self, ask: Callable[[], Awaitable[T]], clock: Callable[[], float]) -> None:
        self._ask = ask
        self._clock = clock
        self._asking: asyncio.Task[T] | None = None
        self._stale_at = 0.0

    async def get(self) -> T:
        """Raises as *ask* does."""
        asking = self._asking
        if asking is None or (asking.done() and (asking.cancelled() or self._clock() >= self._stale_at)):
            asking = self._asking = asyncio.create_task(self._asked(), name="question to an issuer")
        # Anyone who leaves takes the answer from nobody.
        return await asyncio.shield(asking)

    async def _asked(self) -> T:
        fresh_s = _FAILED_S
        try:
            answer = await self._ask()
            fresh_s = FRESH_S
        finally:
            self._stale_at = self._clock() + fresh_s
        return answer

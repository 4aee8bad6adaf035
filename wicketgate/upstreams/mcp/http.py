"""MCP over streamable HTTP, in both eras: each request is a POST, and the caller's task reads its answer.

2026-07-28 has only these requests; closing the connection cancels one. The handshake era also has a session: a header
on every request, POSTs for notifications and for answers to questions, and a GET stream for all other messages.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx

from wicketgate.net import Credentials, HttpClient, Outgoing
from wicketgate.net.outgoing import SPEAKS_TLS, wants_tls
from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.mcp.call import (
    CONNECTION_LOST,
    RESTARTED,
    Call,
    Gone,
    Malformed,
    OutgoingRequest,
    Refused,
    Unfinished,
    no_mcp,
    refusal,
)
from wicketgate.upstreams.mcp.client import Connect, Connection, Lost
from wicketgate.upstreams.mcp.endpoint import (
    EVENTS,
    FAILURES,
    JSON,
    NOTIFY_S,
    Endpoint,
    EventStream,
    beginning_of,
    body_within,
    kind_of,
)
from wicketgate.upstreams.mcp.eras import VERSION_HEADER, Agreement
from wicketgate.upstreams.mcp.exchange import UNASKED_A_SECOND, UNASKED_AT_ONCE, Exchange, Pace, to_its_end, weight_of
from wicketgate.upstreams.mcp.wire import MAX_MESSAGE_BYTES

log = logging.getLogger("wicketgate.upstream")

SESSION_HEADER = "mcp-session-id"
RESUME_HEADER = "last-event-id"

_OPEN_S = 1.0
_GOODBYE_S = 2.0
_MAX_REFUSAL_BYTES = 1024 * 1024

_STREAMS_AT_ONCE = 20
_STREAMS_A_SECOND = 5.0
_REOPEN_S = 1.0
_LONGEST_REOPEN_S = 60.0
_MAX_DOUBLINGS = 30
_MAX_RESUMED = 2
_LISTEN = {"Accept": EVENTS}


@asynccontextmanager
async def http_transport(
    name: str,
    url: str,
    headers: Mapping[str, str],
    lost: Lost,
    *,
    outgoing: Outgoing,
    credentials: Credentials | None = None,
    max_answer_bytes: int = MAX_MESSAGE_BYTES,
) -> AsyncGenerator[Connection, None]:
    """Opens a session at the streamable-HTTP endpoint *url*, with *headers* on every request.

    Calls *lost* when a session of the handshake era is gone. 2026-07-28 has no session; there only a failing call shows
    that the server is gone. Closes *credentials* at the end.
    """

    @asynccontextmanager
    async def session(lost: Lost) -> AsyncGenerator[Connection, None]:
        http = HttpClient(outgoing)
        endpoint = Endpoint(http, url, headers, credentials)
        connection = _StreamableHttp(name, http, endpoint, lost, session, max_answer_bytes)
        try:
            yield connection
        finally:
            await to_its_end(connection.close)

    try:
        async with session(lost) as connection:
            yield connection
    finally:
        if credentials is not None:
            await to_its_end(credentials.aclose)


class _StreamableHttp(Connection):
    has_headers = True

    def __init__(
        self, name: str, http: HttpClient, endpoint: Endpoint, lost: Lost, beside: Connect, max_bytes: int
    ) -> None:
        self.beside = beside
        self._name = name
        self.exchange = Exchange(name, self.post)
        self._http = http
        self._endpoint = endpoint
        self._lost = lost
        self._max_bytes = max_bytes
        # The headers of a handshake session; empty in 2026-07-28.
        self._session: dict[str, str] = {}
        self._has_session = False
        self._modern = True
        now = asyncio.get_running_loop().time
        self._unasked = Pace(UNASKED_A_SECOND, UNASKED_AT_ONCE, now)
        self._opening = Pace(_STREAMS_A_SECOND, _STREAMS_AT_ONCE, now)
        self._running = 0
        self._closed = False

    async def request(self, request: OutgoingRequest, call: Call) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": call.token, "method": request.method, "params": request.params}
        self.exchange.begin(call)
        self._running += 1
        try:
            call.carried = True
            opens = request.method == "initialize"
            return await self._asked(wire.encode(message), {**self._session, **request.headers}, call, opens=opens)
        except FAILURES as error:
            call.fail(error)
            raise
        finally:
            self._running -= 1
            self.exchange.end(call)
            await self._retire()

    async def agreed(self, agreement: Agreement) -> None:
        self._modern = agreement.modern
        if self._modern:
            self._session = {}
            return
        self._session[VERSION_HEADER] = agreement.version
        # Awaited: a server may refuse requests that arrive before it.
        await self._endpoint.notify({"jsonrpc": "2.0", "method": "notifications/initialized"}, self._session)
        if self._has_session:
            opened = asyncio.Event()
            self.exchange.background.start(self._listen(opened))
            # Notifications before the stream is open would be lost. Some servers open it with their first message.
            with suppress(TimeoutError):
                async with asyncio.timeout(_OPEN_S):
                    await opened.wait()

    def post(self, message: Mapping[str, Any]) -> None:
        """Sends *message* in the handshake era. In 2026-07-28 clients send only requests."""
        if not self._modern:
            self.exchange.background.start(self._endpoint.notify(message, self._session))

    async def close(self) -> None:
        """Ends the session. Calls in flight still get their answers."""
        self.exchange.gone = CONNECTION_LOST
        await self.exchange.background.close()
        if self._has_session:
            with suppress(*FAILURES, TimeoutError):
                async with asyncio.timeout(_GOODBYE_S):
                    await (await self._endpoint.send("DELETE", b"", self._session)).aclose()
        self._closed = True
        await self._retire()

    async def _retire(self) -> None:
        if self._closed and self._running == 0:
            await self._http.aclose()

    async def _asked(self, body: bytes, headers: Mapping[str, str], call: Call, *, opens: bool) -> dict[str, Any]:
        """Returns the answer to one request. *opens*: the answer may have the id of a new session."""
        response = await self._endpoint.send("POST", body, headers)
        self.exchange.heard += 1
        try:
            if response.status_code >= 300 or response.status_code == 202:
                raise await self._refused(response)
            if opens and SESSION_HEADER in response.headers:
                self._session = {SESSION_HEADER: response.headers[SESSION_HEADER]}
                self._has_session = True
            match kind := kind_of(response):
                case "application/json":
                    message = wire.decode(await body_within(response, self._max_bytes, call.hold))
                    if message is None or not _answers(message, call):
                        raise no_mcp(kind, "http")
                    call.settle(message)
                    return await call.answer()
                case "text/event-stream":
                    return await self._streamed(response, call)
            raise no_mcp(kind, "http")
        except Unfinished as error:
            log.warning("%s %s; its memory was released", self.exchange.name, error)
            raise
        finally:
            await response.aclose()

    async def _streamed(self, response: httpx.Response, call: Call) -> dict[str, Any]:
        """Reads an answer that is a stream. Resumes a broken stream at most twice, if it can be resumed."""
        stream, resumed = EventStream(response, self._max_bytes, hold=call.hold), 0
        while True:
            lost = Gone("it ended its stream without an answer", carried=True)
            try:
                if await self._read(stream, call):
                    stream.finish()
                    return await call.answer()
            except Gone as gone:
                lost = gone
            finally:
                await response.aclose()
            # Only the handshake era can resume, and only if the events have ids.
            if self._modern or not stream.last_id or resumed == _MAX_RESUMED:
                raise lost
            resumed += 1
            await asyncio.sleep(min(_REOPEN_S if stream.retry_s is None else stream.retry_s, _LONGEST_REOPEN_S))
            headers = {**_LISTEN, **self._session, RESUME_HEADER: stream.last_id}
            response = await self._endpoint.send("GET", b"", headers)
            if kind_of(response) != EVENTS:
                await response.aclose()
                raise lost
            stream = EventStream(response, self._max_bytes, stream.last_id, call.hold)

    async def _read(self, stream: EventStream, call: Call) -> bool:
        """Returns True if the answer came before the stream ended."""
        while (events := await stream.read()) is not None:
            for event in events:
                message = wire.decode(event.data)
                if message is None:
                    self.exchange.broken(event.data)
                    if call.settled:
                        return True
                    await self._unasked.rest(weight_of(1, len(event.data)))
                    continue
                if _answers(message, call):
                    message.id = call.token
                weight = self.exchange.take(message, call)
                await call.pass_on()
                if call.settled:
                    return True
                await self._unasked.rest(weight_of(weight, len(event.data)))
        return False

    async def _listen(self, opened: asyncio.Event) -> None:
        """Reads the GET stream of a session, and opens it again when it ends. Sets *opened* after the first attempt."""
        last_id, pause_s, failures = "", _REOPEN_S, 0
        while True:
            # Some servers end each stream at once and ask for another.
            await asyncio.sleep(self._opening.take())
            response = None
            try:
                resume = {RESUME_HEADER: last_id} if last_id else {}
                response = await self._endpoint.send("GET", b"", {**_LISTEN, **self._session, **resume})
            except FAILURES as error:
                if isinstance(error, Gone) and not error.carried:
                    self._forgotten()
                    return
            finally:
                opened.set()
            failures += 1
            if response is not None:
                try:
                    # After a server error the stream may be available later; any other refusal is final.
                    if response.status_code < 500:
                        if response.status_code in (400, 401, 404) and not await self._is_known():
                            self._forgotten()
                        if response.status_code >= 300 or kind_of(response) != EVENTS:
                            return
                        failures, stream = 0, EventStream(response, self._max_bytes, last_id)
                        with suppress(Gone, Malformed):
                            await self._hear(stream)
                        last_id, pause_s = stream.last_id, _REOPEN_S if stream.retry_s is None else stream.retry_s
                finally:
                    await response.aclose()
            await asyncio.sleep(reopening_pause_s(pause_s, failures))

    async def _hear(self, stream: EventStream) -> None:
        while (events := await stream.read()) is not None:
            for event in events:
                message = wire.decode(event.data)
                weight = 1 if message is None else self.exchange.take(message, elsewhere=True)
                await self._unasked.rest(weight_of(weight, len(event.data)))

    async def _refused(self, response: httpx.Response) -> Exception:
        """Returns the failure: the JSON-RPC error with the HTTP status, or the status alone if there is none. For 429,
        503 and missing scopes the status is enough."""
        status, failed = response.status_code, self._endpoint.no_answer(response, self._name, "http")
        if self._has_session and (status == 404 or (status in (400, 401) and not await self._is_known())):
            self._forgotten()
            return Gone(RESTARTED, carried=False)
        if kind_of(response) == JSON and status not in (429, 503) and failed.scopes is None:
            message = wire.decode(await body_within(response, min(self._max_bytes, _MAX_REFUSAL_BYTES)))
            refused = refusal(wire.error_of(message)) if message is not None and message.method is None else None
            if isinstance(refused, Refused):
                refused.status = failed
                return refused
        if status == 400 and wants_tls(status, await beginning_of(response)):
            return Malformed("speaks https, not http", SPEAKS_TLS.mend_for("url"))
        return failed

    async def _is_known(self) -> bool:
        """Returns True if the server knows our session. MCP requires 404 for an unknown session, but many servers send
        400 and some 401, which have other meanings too. A ping in an unknown session gets the same status."""
        ping = wire.encode({"jsonrpc": "2.0", "id": self.exchange.new_call(None).token, "method": "ping"})
        try:
            async with asyncio.timeout(NOTIFY_S):
                response = await self._endpoint.send("POST", ping, self._session)
        except (*FAILURES, TimeoutError):
            return True
        await response.aclose()
        # With a credential, a 401 is about the credential.
        return response.status_code not in ((400, 404) if self._endpoint.authorized else (400, 401, 404))

    def _forgotten(self) -> None:
        self._has_session = False
        # Later, so that the call that noticed it fails first.
        asyncio.get_running_loop().call_soon(self._lost, RESTARTED)


def _answers(message: wire.Message, call: Call) -> bool:
    """Returns True for the answer to *call*. Only an error may have no id: the server could not read it."""
    if message.method is not None:
        return False
    return message.id == call.token or (message.id is None and message.error is not wire.ABSENT)


def reopening_pause_s(first_s: float, failures: int) -> float:
    """Returns the pause before a stream is opened again; it doubles with each of *failures* in a row."""
    return min(first_s * 2.0 ** min(failures, _MAX_DOUBLINGS), _LONGEST_REOPEN_S)

"""The HTTP+SSE transport of 2024-11-05: one stream brings all messages, and names the place for ours."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from typing import Any

from wicketgate.answer_room import AnswerHold
from wicketgate.net import Credentials, HttpClient, Outgoing
from wicketgate.upstreams.mcp import wire
from wicketgate.upstreams.mcp.call import CONNECTION_LOST, Call, Gone, Malformed, OutgoingRequest, no_mcp
from wicketgate.upstreams.mcp.client import Connection, Lost
from wicketgate.upstreams.mcp.endpoint import EVENTS, FAILURES, Endpoint, EventStream, kind_of, leave
from wicketgate.upstreams.mcp.eras import Agreement
from wicketgate.upstreams.mcp.exchange import UNASKED_A_SECOND, UNASKED_AT_ONCE, Exchange, Pace, to_its_end, weight_of
from wicketgate.upstreams.mcp.wire import MAX_MESSAGE_BYTES


@asynccontextmanager
async def sse_transport(
    name: str,
    url: str,
    headers: Mapping[str, str],
    lost: Lost,
    *,
    outgoing: Outgoing,
    credentials: Credentials | None = None,
    max_answer_bytes: int = MAX_MESSAGE_BYTES,
) -> AsyncGenerator[Connection, None]:
    """Talk to the server whose stream is at *url*, with *headers* on every request. Raises Gone and Malformed."""
    connection = _Sse(name, HttpClient(outgoing), lost, max_answer_bytes)
    try:
        await connection.open(url, headers, credentials)
        yield connection
    finally:
        connection.exchange.close(CONNECTION_LOST)
        try:
            await to_its_end(connection.close)
        finally:
            if credentials is not None:
                await to_its_end(credentials.aclose)


async def _place(stream: EventStream, own: Endpoint) -> Endpoint:
    """The endpoint for our messages, which the server's first event names."""
    while (events := await stream.read()) is not None:
        for event in events:
            if event.name == "endpoint":
                place = own.at(event.data.decode("utf-8", "replace"))
                if place is None:
                    raise Malformed("wants its messages at another origin, which is not followed")
                return place
    raise Gone(CONNECTION_LOST, carried=False)


class _Sse(Connection):
    handshake_only = True
    _place: Endpoint

    def __init__(self, name: str, http: HttpClient, lost: Lost, max_bytes: int) -> None:
        self.exchange = Exchange(name, self.post)
        self._name = name
        self._http = http
        self._lost = lost
        self._max_bytes = max_bytes
        self._unasked = Pace(UNASKED_A_SECOND, UNASKED_AT_ONCE, asyncio.get_running_loop().time)

    async def open(self, url: str, headers: Mapping[str, str], credentials: Credentials | None) -> None:
        """Open the stream, and wait until it has named the place for our messages. Raises Gone and Malformed."""
        endpoint = Endpoint(self._http, url, {**headers, "Accept": EVENTS}, credentials)
        response = await endpoint.send("GET", b"", {})
        if response.status_code != 200:
            await response.aclose()
            raise endpoint.no_answer(response, self._name, "sse")
        if kind_of(response) != EVENTS:
            await response.aclose()
            raise no_mcp(kind_of(response), "sse")
        hold = AnswerHold(self.exchange.name, self.exchange.note_life)
        stream = EventStream(response, self._max_bytes, hold=hold)
        self._place = await _place(stream, Endpoint(self._http, url, headers, credentials))
        self.exchange.background.start(self._read(stream, hold))

    async def close(self) -> None:
        await self.exchange.background.close()
        await self._http.aclose()

    async def request(self, request: OutgoingRequest, call: Call) -> dict[str, Any]:
        return await self.exchange.request(request, call, self.send)

    async def agreed(self, agreement: Agreement) -> None:
        await self._place.notify({"jsonrpc": "2.0", "method": "notifications/initialized"}, {})

    async def send(self, message: Mapping[str, Any], call: Call) -> None:
        call.carried = True
        try:
            response = await self._place.send("POST", wire.encode(message), {})
        except FAILURES as error:
            call.fail(error)
            raise
        await leave(response)
        if response.status_code >= 300:
            # The answer would have come on the stream.
            call.fail(self._place.no_answer(response, self._name, "sse"))

    def post(self, message: Mapping[str, Any]) -> None:
        self.exchange.background.start(self._place.notify(message, {}))

    async def _read(self, stream: EventStream, hold: AnswerHold) -> None:
        """Take messages until the stream ends, which ends the connection."""
        with suppress(Gone, Malformed), closing(hold):
            while (events := await stream.read()) is not None:
                for event in events:
                    message = wire.decode(event.data)
                    if message is None:
                        self.exchange.broken(event.data)
                    weight = 1 if message is None else self.exchange.take(message, hold=hold)
                    await self._unasked.rest(weight_of(weight, len(event.data)))
        self.exchange.close(CONNECTION_LOST)
        self._lost(CONNECTION_LOST)

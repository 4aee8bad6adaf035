"""OpenApiUpstream: the operations of an HTTP service, described by its OpenAPI document, as tools (DESIGN §2).

The document is supervised as a session would be: had with a deadline, retried, looked at again. One that cannot be read
any more leaves the tools that it gave before. Each call is one HTTP request that is made once; after a 401 once more,
with a new credential, for a server that wants another credential has done nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from wicketgate.errors import UpstreamError, UpstreamLost, UpstreamUnavailable
from wicketgate.net import Credentials, HttpClient, NeverSent, fetch
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.text.correlation import HEADER
from wicketgate.upstreams.openapi.answers import Answer, answer_to_result
from wicketgate.upstreams.openapi.bodies import base_type
from wicketgate.upstreams.openapi.document import DocumentRefused, read_document
from wicketgate.upstreams.openapi.operations import Operation, Reading, read_operations
from wicketgate.upstreams.openapi.outputs import STREAMS
from wicketgate.upstreams.openapi.requests import Request, build_request
from wicketgate.upstreams.openapi.servers import server_url
from wicketgate.upstreams.openapi.source import DocumentSource, SourceFailed

log = logging.getLogger("wicketgate.upstream")

_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0
_BULKY_BYTES = 256 * 1024
_TOLD = 20


@dataclass(frozen=True, slots=True)
class _Service:
    """What the last good document says: the operations by name, and where they are called."""

    base_url: str = ""
    operations: Mapping[str, Operation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """How the service is called; without *base_url* its document says where."""

    base_url: str
    headers: Mapping[str, str]
    credentials: Credentials | None
    max_answer_bytes: int


class OpenApiUpstream:
    """Implements Upstream. It is of use while ``supervise`` runs, which closes *http* at its end."""

    def __init__(
        self,
        name: str,
        source: DocumentSource,
        http: HttpClient,
        access: ServiceAccess,
        *,
        connect_timeout_s: float,
        jitter: Callable[[], float],
    ) -> None:
        self._name = name
        self._source = source
        self._http = http
        self._access = access
        self._headers = {name.lower(): value for name, value in access.headers.items()}
        self._connect_timeout_s = connect_timeout_s
        self._jitter = jitter
        self._service: _Service | None = None
        self._status = UpstreamStatus("connecting")
        self._trouble = ""

    @property
    def name(self) -> str:
        return self._name

    @property
    def status(self) -> UpstreamStatus:
        return self._status

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Look at the document for ever; while it cannot be had, ever more rarely, up to ten seconds."""
        delay = _FIRST_DELAY_S
        try:
            while True:
                if await self._look(changed):
                    delay = _FIRST_DELAY_S
                    await asyncio.sleep(self._spread(self._source.poll_s))
                else:
                    await asyncio.sleep(self._spread(delay))
                    delay = min(delay * 2, _MAX_DELAY_S)
        finally:
            await self._http.aclose()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        return [operation.tool for operation in self._known().operations.values()]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        service = self._known()
        operation = service.operations.get(name)
        if operation is None:
            raise UpstreamError(f"{self._name} no longer has this operation.")
        if operation.streams:
            raise UpstreamError(f"{self._name} answers this operation with a stream, which a tool call cannot carry.")
        request = build_request(operation, arguments)
        try:
            answer = await self._answer(service.base_url, request, context)
            return await self._result(operation, answer)
        except NeverSent as error:
            log.warning("%s: cannot be reached: %s: %s", self._name, type(error).__name__, error)
            raise UpstreamUnavailable(f"{self._name} cannot be reached.") from None
        except httpx.RequestError as error:
            log.warning("%s: lost while a call ran: %s: %s", self._name, type(error).__name__, error)
            raise UpstreamLost(
                f"The connection to {self._name} was lost while the tool ran; whether it took effect is not known."
            ) from None

    def _known(self) -> _Service:
        if self._service is None:
            raise UpstreamUnavailable(f"{self._name} is not connected ({self._status.error or 'connecting'}).")
        return self._service

    async def _answer(self, base_url: str, request: Request, context: CallContext) -> Answer:
        headers = {**request.headers, **self._headers, HEADER.lower(): context.correlation_id}
        if request.body is not None:
            headers["content-type"] = request.content_type
        reply = await fetch(
            self._http,
            request.method,
            base_url.rstrip("/") + request.target,
            headers,
            request.body,
            max_bytes=self._access.max_answer_bytes,
            credentials=self._access.credentials,
            unread=lambda content_type: base_type(content_type) in STREAMS,  # it need not end
        )
        return Answer(reply.status, reply.headers, reply.body, reply.cut)

    async def _result(self, operation: Operation, answer: Answer) -> Mapping[str, Any]:
        if answer.media_type in STREAMS:
            raise UpstreamError(f"{self._name} answered with a stream, which a tool call cannot carry.")
        if answer.cut and answer.status < 300:
            raise UpstreamError(f"{self._name} gave an answer of more than {self._access.max_answer_bytes:,} bytes.")
        uri = f"openapi://{self._name}/{operation.name}"
        if len(answer.body) > _BULKY_BYTES:
            return await asyncio.to_thread(answer_to_result, answer, uri)
        return answer_to_result(answer, uri)

    async def _look(self, changed: Callable[[str], None]) -> bool:
        """Take the document in if it is another one; False if it cannot be had or used."""
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                data = await self._source.load()
            if data is not None:
                # No deadline: it is bounded, a thread cannot be ended, and trying again would take as long.
                service, skipped = await asyncio.to_thread(self._read, data)
        except TimeoutError:
            self._failed(f"no document within {self._connect_timeout_s:g} s")
        except (SourceFailed, DocumentRefused) as reason:
            # A refused document is not read again as long as it is the same: its source knows.
            self._failed(str(reason))
        except UpstreamUnavailable:
            self._failed("no credential for it could be had")
        else:
            if data is not None:
                self._take(service, skipped, changed)
            return True
        return False

    def _read(self, data: bytes) -> tuple[_Service, Sequence[str]]:
        document = read_document(data)
        reserved = frozenset((*self._headers, HEADER.lower()))
        base_url = self._access.base_url or server_url(document, self._source.url)
        reading: Reading = read_operations(document, own_servers=not self._access.base_url, reserved_headers=reserved)
        if not reading.operations:
            reason = f" ({reading.skipped[0]})" if len(reading.skipped) == 1 else ""
            log.warning("%s: its document has no operation that can be used%s", self._name, reason)
        return _Service(base_url, reading.operations), reading.skipped

    def _take(self, service: _Service, skipped: Sequence[str], changed: Callable[[str], None]) -> None:
        for reason in skipped[:_TOLD]:
            log.warning("%s: operation left out: %s", self._name, reason)
        if len(skipped) > _TOLD:
            log.warning("%s: %d more operations left out", self._name, len(skipped) - _TOLD)
        is_new = service != self._service
        self._service = service
        self._status = UpstreamStatus("ready", last_error=self._trouble)
        self._trouble = ""
        if is_new:
            log.info("%s: document read, %d operations", self._name, len(service.operations))
            changed(self._name)

    def _failed(self, reason: str) -> None:
        if self._trouble != reason:
            kept = "; the operations of the last one stay" if self._service is not None else ""
            log.warning("%s: %s%s", self._name, reason, kept)
        self._trouble = reason
        if self._service is None:
            self._status = UpstreamStatus("down", reason, last_error=reason)
        else:
            self._status = UpstreamStatus("ready", last_error=reason)

    def _spread(self, delay_s: float) -> float:
        return delay_s * (0.5 + self._jitter() / 2)

"""OpenApiUpstream: the operations of an HTTP service, described by its OpenAPI document, as tools.

The document is read with a deadline, retried, and read again from time to time. If that fails, the tools of the last
one stay. Each call is one HTTP request that is made once. After a 401 it is made once more with a new credential,
because a server that wants another credential has done nothing.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import httpx

from wicketgate.answer_room import hold_in_force
from wicketgate.errors import UpstreamError, UpstreamLost, UpstreamUnavailable, UpstreamUnclear
from wicketgate.fleet.turns import Turns
from wicketgate.log_text import HEADER
from wicketgate.net import Credentials, HttpClient, NeverSent, NoAnswer, Reply, fetch
from wicketgate.net.outgoing import SPEAKS_TLS, NotHttp, told, trouble_of, wants_tls
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.tracing import TRACEPARENT, OpenSpan, parent_of, traced
from wicketgate.upstreams.openapi.bodies import STREAMS, base_type
from wicketgate.upstreams.openapi.document import (
    MAX_DOCUMENT_BYTES,
    DocumentRefused,
    read_document,
    server_url,
)
from wicketgate.upstreams.openapi.exchange import HttpRequest, answer_to_result, build_request, media_type_of
from wicketgate.upstreams.openapi.operations import OpenApiOperation, read_operations
from wicketgate.upstreams.openapi.security import Configured, security_notes

log = logging.getLogger("wicketgate.upstream")

_FILE_POLL_S = 2.0
_URL_POLL_S = 300.0
_MAX_HOPS = 3
_FIRST_DELAY_S = 0.2
_MAX_DELAY_S = 10.0
_BULKY_BYTES = 256 * 1024
_MAX_REPORTED = 20


class SourceFailed(Exception):
    """The document cannot be read, or yields no tool. The text is a fixed phrase; *mend* is for the operator, and may
    name paths. *skipped* has the reason for each operation that cannot be used."""

    def __init__(self, why: str, mend: str = "", skipped: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.mend = mend
        self.skipped = skipped


class DocumentSource(Protocol):
    """The place that a document comes from. It is read again after *poll_s*; *url* is empty for a file."""

    poll_s: float
    url: str

    async def load(self) -> bytes | None:
        """Returns the document, or None if it has not changed since the last call. The caller sets a deadline.

        Raises SourceFailed, and UpstreamUnavailable when there is no credential.
        """
        ...


class FileSource:
    """A document on disk. It has changed if its size, its inode or one of its times has (that of its rights too)."""

    url = ""

    def __init__(self, path: Path, *, poll_s: float = _FILE_POLL_S) -> None:
        self._path = path
        self._seen: tuple[int, int, int, int] | None = None
        self.poll_s = poll_s

    async def load(self) -> bytes | None:
        return await asyncio.to_thread(self._load)

    def _load(self) -> bytes | None:
        try:
            stat = self._path.stat()
            mark = stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino
            if mark == self._seen:
                return None
            if not self._path.is_file():
                raise SourceFailed("its document is not a file", "openapi must name the file itself")
            with self._path.open("rb") as file:
                data = file.read(MAX_DOCUMENT_BYTES + 1)
        except FileNotFoundError:
            mend = "correct openapi; a relative path counts from the folder that the gate was started in"
            raise SourceFailed("its document was not found", mend) from None
        except PermissionError:
            raise SourceFailed("its document cannot be read", "the user of the gate may not read it") from None
        except OSError:
            raise SourceFailed("its document cannot be read", "look at the file and its disk") from None
        self._seen = mark
        return data


@dataclass(eq=False, repr=False)
class UrlSource:
    """A document over HTTP, with its ETag. *headers* and *credentials* are sent for it, so the caller gives them only
    if the document is on the server that they are for."""

    url: str
    _http: HttpClient
    _headers: Mapping[str, str]
    _credentials: Credentials | None
    poll_s: float = _URL_POLL_S

    def __post_init__(self) -> None:
        self._validators: dict[str, str] = {}

    async def load(self) -> bytes | None:
        headers = {**self._headers, "Accept": "application/json, application/yaml, */*;q=0.5", **self._validators}
        try:
            answer = await fetch(
                self._http,
                "GET",
                self.url,
                headers,
                max_bytes=MAX_DOCUMENT_BYTES,
                hops=_MAX_HOPS,
                credentials=self._credentials,
            )
        except NeverSent as error:
            why = f"its document cannot be reached: {error.why}"
            raise SourceFailed(why, error.trouble.mend_for("openapi")) from None
        except (NoAnswer, NotHttp) as error:
            trouble = trouble_of(error)
            mend = trouble.mend_for("openapi") if self.url.startswith("http://") else ""
            raise SourceFailed(f"its document cannot be read: {trouble.why}", mend) from None
        except httpx.RequestError:
            raise SourceFailed("the connection was lost while its document was read") from None
        # Only a whole document is taken over, and its validators with it.
        if answer.status == 304 and self._validators:
            return None
        if answer.status != 200:
            raise SourceFailed(f"the server of its document answered {answer.status}", _mend_of(answer))
        if answer.cut:
            raise SourceFailed("its document is too large")
        if base_type(answer.headers.get("content-type", "")) in _WEB_PAGE and answer.body.lstrip()[:1] == b"<":
            raise SourceFailed("its document is a web page", _DOCUMENT_PATH)
        known = (
            ("If-None-Match", answer.headers.get("etag")),
            ("If-Modified-Since", answer.headers.get("last-modified")),
        )
        self._validators = {name: value for name, value in known if value}
        return answer.body


_WEB_PAGE = ("text/html", "application/xhtml+xml")
_DOCUMENT_PATH = "openapi must name the JSON or YAML itself, often /openapi.json"


def _mend_of(answer: Reply) -> str:
    """The mend for an answer that is no document, by its status."""
    if wants_tls(answer.status, answer.body):
        return f"{SPEAKS_TLS.why}: {SPEAKS_TLS.mend_for('openapi')}"
    match answer.status:
        case 401 | 403:
            return "it wants a credential, or another one: headers (Authorization) or oauth"
        case 404 | 405 | 410:
            return f"correct the path; {_DOCUMENT_PATH}"
        case 301 | 302 | 303 | 307 | 308:
            return "it redirects to another server; write the address that it redirects to"
        case 407:
            return "a proxy wants a user and a password: write them into HTTP_PROXY"
    return "look at the log of that server" if answer.status >= 500 else ""


@dataclass(frozen=True, slots=True)
class _Service:
    """The last good document: its operations by name, the URL that they are called at, and why others are left out."""

    base_url: str = ""
    operations: Mapping[str, OpenApiOperation] = field(default_factory=dict)
    skipped: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ServiceAccess:
    """The URL, the credentials and the bounds of calls. Without *base_url* the document names the server.

    *follow_redirects*: a call by GET or HEAD follows redirects within the origin. It may then reach a path that is no
    operation of the document. *query* is sent with every call, behind its own.
    """

    base_url: str
    headers: Mapping[str, str]
    credentials: Credentials | None
    max_answer_bytes: int
    follow_redirects: bool = False
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class OpenApiUpstream:
    """Implements Upstream, HasPing, HasLeftOut and HasNotes. Works while ``supervise`` runs, which closes its client at
    its end. *tried* is the place of the document, as the operator is told it."""

    name: str
    _source: DocumentSource
    _http: HttpClient
    _access: ServiceAccess
    connect_timeout_s: float
    jitter: Callable[[], float]
    turns: Turns = field(default_factory=Turns)
    tried: str = ""

    def __post_init__(self) -> None:
        self._headers = {name.lower(): value for name, value in self._access.headers.items()}
        self._query = "&".join(
            f"{quote(name, safe='')}={quote(value, safe='')}" for name, value in self._access.query.items()
        )
        self._service: _Service | None = None
        self._refused: Sequence[str] = ()
        self.status = UpstreamStatus("connecting")
        self._trouble = ""

    @property
    def left_out(self) -> Sequence[str]:
        return self._service.skipped if self._service is not None else self._refused

    @property
    def notes(self) -> Sequence[str]:
        operations = self._service.operations.values() if self._service is not None else ()
        return security_notes(operation.missing for operation in operations)

    async def supervise(self, changed: Callable[[str], None]) -> None:
        """Reads the document again and again; after a failure with delays that grow up to ten seconds."""
        delay = _FIRST_DELAY_S
        try:
            while True:
                if await self._refresh(changed):
                    delay = _FIRST_DELAY_S
                    await asyncio.sleep(self._spread(self._source.poll_s))
                else:
                    await asyncio.sleep(self._spread(delay))
                    delay = min(delay * 2, _MAX_DELAY_S)
        finally:
            await self._http.aclose()
            if self._access.credentials is not None:
                await self._access.credentials.aclose()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        return [operation.tool for operation in self._known().operations.values()]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        service = self._known()
        operation = service.operations.get(name)
        if operation is None:
            raise UpstreamError(f"{self.name} no longer has this operation.")
        if operation.streams:
            raise UpstreamError(f"{self.name} answers this operation with a stream, which a tool call cannot return.")
        request = build_request(operation, arguments)
        # Errors are distinguished by whether the operation can have taken effect.
        try:
            send = partial(self._answer, service.base_url, request)
            noted = {"http.request.method": request.method, "gen_ai.tool.name": name}
            answer = await traced(request.method, "CLIENT", noted, context, send, _noted_status)
            return await self._result(operation, answer)
        except NeverSent as error:
            setting = "base_url" if self._access.base_url else "openapi"
            log.warning("%s: %s", self.name, error.trouble.told(service.base_url, setting))
            raise UpstreamUnavailable(f"{self.name} cannot be reached ({error.why}).") from None
        except httpx.RequestError as error:
            log.warning("%s: lost while a call ran: %s: %s", self.name, type(error).__name__, error)
            raise UpstreamLost(f"The connection to {self.name} was lost while the tool ran.") from None

    async def ping(self, timeout_s: float) -> None:
        """Connects and sends nothing: no request is sure to change nothing at a service that is not ours."""
        try:
            await self._http.transport.reach(self._known().base_url, timeout_s)
        except NeverSent as error:
            raise UpstreamUnavailable(f"{self.name} cannot be reached ({error.why}).") from None

    def _known(self) -> _Service:
        if self._service is None:
            raise UpstreamUnavailable(f"{self.name} is not connected ({self.status.error or 'connecting'}).")
        return self._service

    async def _answer(self, base_url: str, request: HttpRequest, context: CallContext) -> Reply:
        headers = {**request.headers, **self._headers, HEADER.lower(): context.correlation_id}
        if parent := parent_of(context.meta):
            headers[TRACEPARENT] = parent
        if request.body is not None:
            headers["content-type"] = request.content_type
        target = request.target
        if self._query:
            target += f"{'&' if '?' in target else '?'}{self._query}"
        return await fetch(
            self._http,
            request.method,
            base_url.rstrip("/") + target,
            headers,
            request.body,
            max_bytes=self._access.max_answer_bytes,
            hops=_MAX_HOPS if self._access.follow_redirects and request.method in ("GET", "HEAD") else 0,
            credentials=self._access.credentials,
            unread=lambda content_type: base_type(content_type) in STREAMS,
            room=hold_in_force.get(),
        )

    async def _result(self, operation: OpenApiOperation, answer: Reply) -> Mapping[str, Any]:
        if media_type_of(answer) in STREAMS:
            raise UpstreamUnclear(f"{self.name} answered with a stream, which a tool call cannot return.")
        if answer.cut and answer.status < 300:
            raise UpstreamUnclear(f"{self.name} gave an answer of more than {self._access.max_answer_bytes:,} bytes.")
        uri = f"openapi://{self.name}/{operation.name}"
        # For want of configuration: by the document, or because nothing is configured.
        lacking = operation.missing or not (self._headers or self._query or self._access.credentials)
        unconfigured = answer.status == HTTPStatus.UNAUTHORIZED and bool(lacking)
        if unconfigured:
            asked = (
                f"it asks for {operation.missing}"
                if operation.missing
                else "no headers, no query and no oauth are configured"
            )
            log.warning("%s: %s was answered with 401: %s", self.name, operation.name, asked)
        if len(answer.body) > _BULKY_BYTES:
            return await asyncio.to_thread(answer_to_result, answer, uri, unconfigured)
        return answer_to_result(answer, uri, unconfigured)

    async def _refresh(self, changed: Callable[[str], None]) -> bool:
        """Puts the document in force if it has changed. Returns False if it cannot be read or used."""
        try:
            with await self.turns.take():
                async with asyncio.timeout(self.connect_timeout_s):
                    data = await self._source.load()
            if data is not None:
                # No deadline: the work is bounded, a thread cannot be ended, and a second try would take as long.
                service = await asyncio.to_thread(self._read, data)
        except TimeoutError:
            mend = "raise connect_timeout_s if it is only slow"
            self._failed(f"no document within {self.connect_timeout_s:g} s", mend)
        except SourceFailed as failure:
            if self._service is None:
                self._refused = failure.skipped
            self._failed(str(failure), failure.mend)
        except DocumentRefused as reason:
            # It is not read again until it changes: its source returns None.
            self._failed(str(reason), _DOCUMENT_PATH if self._source.url else "")
        except UpstreamUnavailable:
            mend = "a line of the log with 'no token' says why; look at oauth"
            self._failed("no credential for it could be had", mend)
        else:
            if data is not None:
                self._put_in_force(service, changed)
            return True
        return False

    def _read(self, data: bytes) -> _Service:
        document = read_document(data)
        configured = Configured(
            frozenset((*self._headers, HEADER.lower())),
            frozenset(self._access.query),
            self._access.credentials is not None,
        )
        base_url = self._access.base_url or server_url(document, self._source.url)
        reading = read_operations(document, configured, own_servers=not self._access.base_url)
        if not reading.operations:
            mend, more = "it describes none, or none that is not marked x-internal", len(reading.skipped) - 1
            if reading.skipped:
                mend = reading.skipped[0] + (f"; and {more:,} more" if more else "")
            raise SourceFailed("its document has no usable operation", mend, reading.skipped)
        return _Service(base_url, reading.operations, reading.skipped)

    def _put_in_force(self, service: _Service, changed: Callable[[str], None]) -> None:
        skipped = service.skipped
        for reason in skipped[:_MAX_REPORTED]:
            log.warning("%s: operation left out: %s", self.name, reason)
        if len(skipped) > _MAX_REPORTED:
            log.warning("%s: %d more operations left out", self.name, len(skipped) - _MAX_REPORTED)
        is_new = service != self._service
        self._service = service
        self.status = UpstreamStatus("ready", last_error=self._trouble)
        self._trouble = ""
        if is_new:
            log.info("%s: document read, %d operations", self.name, len(service.operations))
            for note in self.notes:
                log.warning("%s: %s", self.name, note)
            changed(self.name)

    def _failed(self, reason: str, mend: str = "") -> None:
        """*reason* is a fixed phrase; *mend* is for the operator."""
        detail = told(reason, self.tried, mend) if mend else ""
        report = detail or reason
        if self._trouble != report:
            kept = "; the operations of the last one stay" if self._service is not None else ""
            log.warning("%s: %s%s", self.name, report, kept)
        self._trouble = report
        if self._service is None:
            self.status = UpstreamStatus("down", reason, last_error=report, detail=detail)
        else:
            self.status = UpstreamStatus("ready", last_error=report)

    def _spread(self, delay_s: float) -> float:
        return delay_s * (0.5 + self.jitter() / 2)


def _noted_status(span: OpenSpan, answer: Reply | None) -> str:
    if answer is None:
        return ""
    span.note({"http.response.status_code": answer.status})
    return str(answer.status) if answer.status >= HTTPStatus.BAD_REQUEST else ""

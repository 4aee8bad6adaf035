"""Where an OpenAPI document comes from, and whether it is another one by now: a file, or a URL with its ETag."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import httpx

from wicketgate.net import Credentials, HttpClient, NeverSent, fetch
from wicketgate.upstreams.openapi.document import MAX_DOCUMENT_BYTES

_FILE_POLL_S = 2.0
_URL_POLL_S = 300.0
_MAX_HOPS = 3


class SourceFailed(Exception):
    """The document could not be had; the text is a fixed phrase."""


class DocumentSource(Protocol):
    @property
    def poll_s(self) -> float:
        """How long to wait before looking again."""
        ...

    @property
    def url(self) -> str:
        """Empty for a file."""
        ...

    async def load(self) -> bytes | None:
        """The document, or None if it is the one given last. The caller sets a deadline.

        Raises SourceFailed, and UpstreamUnavailable when there is no credential.
        """
        ...


class FileSource:
    """A document on disk; another size, time or inode is another document."""

    url = ""

    def __init__(self, path: Path, *, poll_s: float = _FILE_POLL_S) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self.poll_s = poll_s

    async def load(self) -> bytes | None:
        return await asyncio.to_thread(self._load)

    def _load(self) -> bytes | None:
        try:
            stat = self._path.stat()
            mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
            if mark == self._seen:
                return None
            if not self._path.is_file():
                raise SourceFailed("its document is not a file")
            with self._path.open("rb") as file:
                data = file.read(MAX_DOCUMENT_BYTES + 1)
        except FileNotFoundError:
            raise SourceFailed("its document was not found") from None
        except OSError:
            raise SourceFailed("its document cannot be read") from None
        self._seen = mark
        return data


class UrlSource:
    """A document over HTTP. *headers* and *credentials* are sent for it, so the caller gives them only where it comes
    from the server that they are for."""

    def __init__(
        self,
        url: str,
        http: HttpClient,
        headers: Mapping[str, str],
        credentials: Credentials | None,
        *,
        poll_s: float = _URL_POLL_S,
    ) -> None:
        self.url = url
        self.poll_s = poll_s
        self._http = http
        self._headers = headers
        self._credentials = credentials
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
        except NeverSent:
            raise SourceFailed("its document cannot be reached") from None
        except httpx.RequestError:
            raise SourceFailed("the connection was lost while its document was read") from None
        if answer.status == 304 and self._validators:
            return None
        if answer.status != 200:
            raise SourceFailed(f"the server of its document answered {answer.status}")
        if answer.cut:
            raise SourceFailed("its document is too large")
        known = (
            ("If-None-Match", answer.headers.get("etag")),
            ("If-Modified-Since", answer.headers.get("last-modified")),
        )
        self._validators = {name: value for name, value in known if value}
        return answer.body

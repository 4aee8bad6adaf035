"""The parts of a request that a door reads, whichever way it came in: through the SDK's server, or past it."""

from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol


class HttpRequest(Protocol):
    """The HTTP side of a request. The names of *headers* are in small letters."""

    @property
    def headers(self) -> Mapping[str, str]: ...

    @property
    def scope(self) -> MutableMapping[str, Any]: ...


class McpRequest(Protocol):
    """*meta* are the values of ``_meta`` in *params*. *request* is None over stdio. The SDK's context is one."""

    @property
    def method(self) -> str: ...

    @property
    def params(self) -> Mapping[str, Any] | None: ...

    @property
    def meta(self) -> Mapping[str, Any] | None: ...

    @property
    def protocol_version(self) -> str: ...

    @property
    def request(self) -> HttpRequest | None: ...

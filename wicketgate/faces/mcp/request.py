"""The parts of a request that a door reads, whichever way it came in: through the SDK's server, or past it."""

import re
from collections.abc import Mapping, MutableMapping
from typing import Any, Protocol

from wicketgate.faces.surface import ResultForm

RESULT_KEY = "wicketgate/result"
_FORMS: Mapping[str, ResultForm] = {"text": "text", "json": "json", "both": "both"}
_FORM = re.compile(rb"(?:^|&)result=(text|json|both)(?:&|$)")


def result_form(asked: "McpRequest", default: ResultForm) -> ResultForm:
    """Returns the form of results that the request asks for, in ``_meta`` or in the query of its URL (FACE-176)."""
    wanted = asked.meta and asked.meta.get(RESULT_KEY)
    if isinstance(wanted, str) and wanted in _FORMS:
        return _FORMS[wanted]
    query = asked.request.scope.get("query_string") if asked.request is not None else None
    named = _FORM.search(query) if query else None
    return _FORMS[named[1].decode()] if named else default


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

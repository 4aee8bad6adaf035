"""One call of an operation as an HTTP request, in which no argument can leave its place (S0 §4.4)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

from wicketgate.errors import ArgsInvalid
from wicketgate.upstreams.openapi.bodies import BodyRefused, write_body
from wicketgate.upstreams.openapi.operations import Operation
from wicketgate.upstreams.openapi.parameters import Parameter, cookie_text, header_text, path_text, query_pairs

_MAX_URL = 32_000
_MAX_HEADER = 8_000


@dataclass(frozen=True, slots=True)
class Request:
    """*target* is path and query, encoded, to be put behind the base URL as it is. Header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None
    content_type: str


def build_request(operation: Operation, arguments: Mapping[str, Any]) -> Request:
    """Raises ArgsInvalid for values that no request can carry; the others are valid by the tool's schema."""
    values: dict[str, str] = {}
    query: list[str] = []
    cookies: list[str] = []
    headers = {"accept": operation.accept}
    try:
        for parameter in operation.parameters:
            value = arguments.get(parameter.argument)
            if parameter.argument not in arguments or (value is None and parameter.place != "path"):
                continue
            match parameter.place:
                case "path":
                    values[parameter.name] = path_text(parameter, value)
                case "query":
                    query += query_pairs(parameter, value)
                case "header":
                    headers[parameter.name.lower()] = _header(parameter, value)
                case "cookie":
                    cookies.append(cookie_text(parameter, value))
        if cookies:
            headers["cookie"] = "; ".join(cookies)
        written = write_body(operation.body, arguments) if operation.body is not None else None
        path = _path(operation.template, values)
    except BodyRefused as reason:
        raise _refused("body", str(reason)) from None
    except (UnicodeEncodeError, ValueError, RecursionError):
        raise _refused("arguments", "hold text or numbers that cannot be sent") from None
    body, content_type = written or (None, "")
    target = path + ("?" + "&".join(query) if query else "")
    if len(target) > _MAX_URL or any(len(text) > _MAX_HEADER for text in headers.values()):
        raise _refused("arguments", "are too long for a URL or a header")
    return Request(operation.method, target, headers, body, content_type)


def _path(template: str, values: Mapping[str, str]) -> str:
    """The path with *values* in place. A segment that a value made empty, or a way up, is refused: servers and
    clients on the way resolve it, encoded or not, and the request would reach another operation."""
    segments = []
    for segment in template.split("/"):
        names = re.findall(r"\{([^{}]*)\}", segment)
        literal = re.split(r"\{[^{}]*\}", segment)
        text = quote(literal[0], safe="%!$&'()*+,;=:@~")
        for name, after in zip(names, literal[1:], strict=True):
            if not values.get(name):
                raise _refused(name, "must not be empty: it is a part of the path")
            text += values[name] + quote(after, safe="%!$&'()*+,;=:@~")
        if names and any(part in (".", "..") for part in re.split(r"[/\\]", unquote(text))):
            raise _refused(names[0], "must not be '.' or '..', nor lead to them: it is a part of the path")
        segments.append(text)
    return "/".join(segments)


def _header(parameter: Parameter, value: object) -> str:
    text = header_text(parameter, value)
    if not (text.isascii() and text.isprintable()):
        raise _refused(parameter.argument, "may hold only printable ASCII: it is sent as a header")
    return text


def _refused(argument: str, problem: str) -> ArgsInvalid:
    return ArgsInvalid(
        f"The call was not sent: {argument} {problem}.",
        details={"errors": [{"path": f"$.{argument}", "message": problem}]},
    )

"""Writes one call of an operation as an HTTP request, and its answer as a tool's result (EXEC-1).

No argument can leave its place in the request. A status of 4xx or 5xx is the server's answer too: the model is shown
it and can act on it. Results are MCP wire JSON (EXEC-18 to EXEC-24).
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import responses
from typing import Any
from urllib.parse import quote, unquote

from wicketgate.errors import ArgsInvalid
from wicketgate.net import Reply
from wicketgate.upstreams.openapi.bodies import BodyRefused, base_type, is_json_type, is_text_type, write_body
from wicketgate.upstreams.openapi.operations import OpenApiOperation
from wicketgate.upstreams.openapi.parameters import (
    NameTaken,
    Parameter,
    cookie_text,
    header_text,
    path_text,
    query_pairs,
)

_MAX_URL = 32_000
_FIXED_QUERY_KEPT = "%!$&'()*+,;=:@~/?[]"
_MAX_HEADER = 8_000
_MAX_ERROR_CHARS = 16_000
_MAX_ERROR_STRUCTURE = 64 * 1024
_WAIT_STATUSES = (429, 503)
_MAX_DECODINGS = 5
# Which one stands in the log: a model can do nothing about it, and has no need to know how a service is protected.
_UNCONFIGURED = (
    "No credential for this service is configured at the gate. Its operator can add one (the log and `wicketgate "
    "check` say which); until then the same call fails again."
)
_BLANKS = " \t\r\n\v\f\0"
_HUGE_EXPONENT = re.compile(rb"[eE]\+?[0-9]{3}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Python knows more encodings, some of which take quadratic time.
_CHARSET = re.compile(
    r"utf-?(8|16|32)([-_]?[lb]e)?|(us-?)?ascii|iso-?8859-?\d{1,2}|latin-?\d{1,2}|(windows-|cp)\d{3,4}|shift[-_]?jis"
    r"|euc-?(jp|kr)|gb(k|2312|18030)|big5|koi8-[ru]"
)


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """*target* is path and query, encoded, and is appended to the base URL unchanged. Header names are in lower
    case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None
    content_type: str


def build_request(operation: OpenApiOperation, arguments: Mapping[str, Any]) -> HttpRequest:
    """Raises ArgsInvalid for values that no request can carry. *arguments* fit the tool's schema."""
    values: dict[str, str] = {}
    query: list[str] = []
    cookies: list[str] = []
    headers = {"accept": operation.accept}
    try:
        # Each argument into its place; one that was not given is left out.
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
        # Then the body and the path, which needs the values collected above.
        if cookies:
            headers["cookie"] = "; ".join(cookies)
        written = write_body(operation.body, arguments) if operation.body is not None else None
        template, _, fixed = operation.template.partition("?")
        path = _path(template, values)
    except BodyRefused as reason:
        raise _refused("body", str(reason)) from None
    except NameTaken as reason:
        raise _refused(reason.argument, str(reason)) from None
    except (UnicodeEncodeError, ValueError, RecursionError):
        raise _refused("arguments", "hold text or numbers that cannot be sent") from None
    body, content_type = written or (None, "")
    if fixed:
        query.insert(0, quote(fixed, safe=_FIXED_QUERY_KEPT))
    target = path + ("?" + "&".join(query) if query else "")
    # Servers and proxies refuse longer ones in words that no model could use.
    if len(target) > _MAX_URL or any(len(text) > _MAX_HEADER for text in headers.values()):
        raise _refused("arguments", "are too long for a URL or a header")
    return HttpRequest(operation.method, target, headers, body, content_type)


def _path(template: str, values: Mapping[str, str]) -> str:
    """Returns the path with *values* in place. Raises ArgsInvalid if a value makes a segment empty, ``.`` or ``..``:
    servers and proxies resolve it, encoded once or twice, and the request would reach another operation."""
    kept = "%!$&'()*+,;=:@~"
    segments = []
    for segment in template.split("/"):
        # Literal text and values alternate within a segment.
        names = re.findall(r"\{([^{}]*)\}", segment)
        literal = re.split(r"\{[^{}]*\}", segment)
        text = quote(literal[0], safe=kept)
        for name, after in zip(names, literal[1:], strict=True):
            if not values.get(name):
                raise _refused(name, "must not be empty: it is a part of the path")
            text += values[name] + quote(after, safe=kept)
        if names and _leads_up(text):
            raise _refused(names[0], "must not be '.' or '..', nor lead to them: it is a part of the path")
        segments.append(text)
    return "/".join(segments)


def _leads_up(segment: str) -> bool:
    """Returns whether any reader may take *segment* for ``.`` or ``..``, or for a path with one.

    Some servers decode a second time behind their proxy, and some cut a part at ``;`` (Tomcat) or at a blank.
    """
    for _ in range(_MAX_DECODINGS):
        decoded = unquote(segment)
        if any(part.partition(";")[0].strip(_BLANKS) in (".", "..") for part in re.split(r"[/\\]", decoded)):
            return True
        if decoded == segment:
            return False
        segment = decoded
    return True


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


def media_type_of(answer: Reply) -> str:
    return base_type(answer.headers.get("content-type", ""))


def answer_to_result(answer: Reply, uri: str, unconfigured: bool = False) -> dict[str, Any]:
    """Returns the tool's result. *uri* names the answer if it becomes a resource. Read a large body in a thread.

    *unconfigured*: the answer is a 401 for want of a credential of the operator's.
    """
    if answer.status >= 300:
        return _failure(answer, unconfigured)
    if not answer.body:
        return {"content": _location(answer)}
    media_type = media_type_of(answer)
    # JSON first, also where no type is given; then text; then binary data.
    if is_json_type(media_type) or not media_type:
        value = _parsed(answer.body)
        if value is not _NOT_JSON:
            content: dict[str, Any] = {"content": [_text_block(_text(answer))]}
            return content | ({"structuredContent": value} if isinstance(value, dict) else {})
    if is_json_type(media_type) or is_text_type(media_type) or (not media_type and _is_utf8(answer.body)):
        return {"content": [_text_block(_text(answer))]}
    data = b64encode(answer.body).decode("ascii")
    for kind in ("image", "audio"):
        if media_type.startswith(f"{kind}/"):
            return {"content": [{"type": kind, "data": data, "mimeType": media_type}]}
    resource = {"uri": uri, "mimeType": media_type or "application/octet-stream", "blob": data}
    return {"content": [{"type": "resource", "resource": resource}]}


def _failure(answer: Reply, unconfigured: bool) -> dict[str, Any]:
    lines = [f"HTTP {answer.status} {responses.get(answer.status, '')}".strip()]
    if unconfigured:
        lines.append(_UNCONFIGURED)
    if answer.status < 400:
        lines.append("The answer leads to another place, which is not followed.")
    wait = answer.headers.get("retry-after", "")
    if answer.status in _WAIT_STATUSES and 0 < len(wait) <= 40 and wait.isprintable():
        lines.append(f"Retry-After: {wait} (seconds, or a date): do not try again before.")
    content = [_text_block("\n".join(lines))]
    result: dict[str, Any] = {"content": content, "isError": True}
    # The beginning of what the server says about it.
    media_type = media_type_of(answer)
    if answer.body and (not media_type or is_json_type(media_type) or is_text_type(media_type)):
        text = _text(answer)
        more = answer.cut or len(text) > _MAX_ERROR_CHARS
        content.append(_text_block(text[:_MAX_ERROR_CHARS] + ("… (cut)" if more else "")))
        if is_json_type(media_type) and not answer.cut and len(answer.body) <= _MAX_ERROR_STRUCTURE:
            value = _parsed(answer.body)
            if isinstance(value, dict):
                result["structuredContent"] = value
    return result


def _location(answer: Reply) -> list[dict[str, Any]]:
    """Returns the address of the thing made, if an answer without a body gives it."""
    location = answer.headers.get("location", "")
    known = answer.status in (201, 202) and 0 < len(location) <= 2_000 and location.isprintable()
    return [_text_block(f"Location: {location}")] if known else []


def _text_block(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


_NOT_JSON = object()


def _parsed(body: bytes) -> Any:
    """Returns the JSON value, or ``_NOT_JSON``. It has no number that JSON cannot write (1e999), and a mark for half a
    surrogate pair, because neither could be sent on."""
    try:
        value = json.loads(body, parse_constant=_reject)
        if _HUGE_EXPONENT.search(body):
            json.dumps(value, allow_nan=False)
        if _SURROGATE.search(body):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return _NOT_JSON
    return value


def _reject(constant: str) -> None:
    raise ValueError(constant)


def _text(answer: Reply) -> str:
    _, found, charset = answer.headers.get("content-type", "").lower().partition("charset=")
    name = charset.partition(";")[0].strip().strip('"') if found else "utf-8"
    try:
        return answer.body.decode(name if _CHARSET.fullmatch(name) else "utf-8", "replace")
    except LookupError:
        return answer.body.decode("utf-8", "replace")


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True

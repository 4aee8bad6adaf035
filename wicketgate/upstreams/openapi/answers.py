"""How an HTTP answer becomes the result of a tool, in MCP wire JSON (S1 "mcp_result_to_envelope").

A status of 4xx or 5xx is the server's answer too: the model is told, and can act on it.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from wicketgate.upstreams.openapi.bodies import base_type, is_json_type, is_text_type

_MAX_ERROR_CHARS = 16_000
_MAX_ERROR_STRUCTURE = 64 * 1024
_WAIT_STATUSES = (429, 503)
_HUGE_EXPONENT = re.compile(rb"[eE]\+?[0-9]{3}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
# Python knows stranger ones, some of which take quadratic time.
_CHARSET = re.compile(
    r"utf-?(8|16|32)([-_]?[lb]e)?|(us-?)?ascii|iso-?8859-?\d{1,2}|latin-?\d{1,2}|(windows-|cp)\d{3,4}|shift[-_]?jis"
    r"|euc-?(jp|kr)|gb(k|2312|18030)|big5|koi8-[ru]"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """*headers* have names in lower case. *cut*: the body went on."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    cut: bool = False

    @property
    def media_type(self) -> str:
        return base_type(self.headers.get("content-type", ""))


def answer_to_result(answer: Answer, uri: str) -> dict[str, Any]:
    """*uri* names the answer where it is kept as a resource. A large body is better read in a thread."""
    if answer.status >= 300:
        return _failure(answer)
    if not answer.body:
        return {"content": _place_made(answer)}
    media_type = answer.media_type
    if is_json_type(media_type) or not media_type:
        value = _parsed(answer.body)
        if value is not _NOT_JSON:
            return _json_result(value, _text(answer))
    if is_json_type(media_type) or is_text_type(media_type) or (not media_type and _is_utf8(answer.body)):
        return {"content": [_said(_text(answer))]}
    data = b64encode(answer.body).decode("ascii")
    for kind in ("image", "audio"):
        if media_type.startswith(f"{kind}/"):
            return {"content": [{"type": kind, "data": data, "mimeType": media_type}]}
    resource = {"uri": uri, "mimeType": media_type or "application/octet-stream", "blob": data}
    return {"content": [{"type": "resource", "resource": resource}]}


def _failure(answer: Answer) -> dict[str, Any]:
    lines = [f"HTTP {answer.status} {_phrase(answer.status)}".strip()]
    if answer.status < 400:
        lines.append("The answer leads to another place, which is not followed.")
    wait = answer.headers.get("retry-after", "")
    if answer.status in _WAIT_STATUSES and 0 < len(wait) <= 40 and wait.isprintable():
        lines.append(f"Retry-After: {wait} (seconds, or a date): do not try again before.")
    content = [_said("\n".join(lines))]
    result: dict[str, Any] = {"content": content, "isError": True}
    media_type = answer.media_type
    if answer.body and (not media_type or is_json_type(media_type) or is_text_type(media_type)):
        text = _text(answer)
        more = answer.cut or len(text) > _MAX_ERROR_CHARS
        content.append(_said(text[:_MAX_ERROR_CHARS] + ("… (cut)" if more else "")))
        if is_json_type(media_type) and not answer.cut and len(answer.body) <= _MAX_ERROR_STRUCTURE:
            value = _parsed(answer.body)
            if isinstance(value, dict):
                result["structuredContent"] = value
    return result


def _json_result(value: object, text: str) -> dict[str, Any]:
    result: dict[str, Any] = {"content": [_said(text)]}
    if isinstance(value, dict):
        result["structuredContent"] = value
    return result


def _place_made(answer: Answer) -> list[dict[str, Any]]:
    """Of an answer without a body: where what it made can be found, if it says so."""
    location = answer.headers.get("location", "")
    known = answer.status in (201, 202) and 0 < len(location) <= 2_000 and location.isprintable()
    return [_said(f"Location: {location}")] if known else []


def _said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class _NotJson:
    pass


_NOT_JSON = _NotJson()


def _parsed(body: bytes) -> Any:
    """JSON with no number that JSON cannot write (1e999), and with a mark for half a surrogate pair: both would make a
    result that cannot be sent on."""
    try:
        value = json.loads(body, parse_constant=_refuse)
        if _HUGE_EXPONENT.search(body):
            json.dumps(value, allow_nan=False)
        if _SURROGATE.search(body):
            value = json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return _NOT_JSON
    return value


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _text(answer: Answer) -> str:
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


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return ""

"""Lets pages of the origins in ``server.allowed_origins`` read answers (CORS; FACE-59).

A browser first asks by a preflight, without a credential; it is answered here, in front of the key check. No cookie is
ever one of our credentials, so none is allowed.
"""

import re

from starlette.types import Scope, Send

from middleware.hosts import HostRule
from middleware.refusals import Headers

_METHODS = b"GET, POST, DELETE"
_EXPOSED = b"Mcp-Session-Id, Retry-After, WWW-Authenticate, X-Correlation-ID"
_KEPT_S = b"600"
"""Seconds for which a browser may keep the answer to a preflight."""
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,128}")
_MAX_NAMES = 64


def shown_to(scope: Scope, rule: HostRule) -> Headers:
    """Returns the headers of an answer that a page of an origin of *rule* may read; none for all others. To be asked
    behind the check of Host and Origin."""
    origin = _value(scope, b"origin")
    if origin is None or not rule.takes_origin(origin.decode("latin-1")):
        return ()
    allowed = ((b"access-control-allow-origin", origin), (b"vary", b"Origin"))
    return allowed if is_preflight(scope) else (*allowed, (b"access-control-expose-headers", _EXPOSED))


def is_preflight(scope: Scope) -> bool:
    return scope["method"] == "OPTIONS" and _value(scope, b"access-control-request-method") is not None


async def answer_preflight(scope: Scope, send: Send) -> None:
    # Any header: those of a tool's own arguments are not known beforehand.
    asked = (_value(scope, b"access-control-request-headers") or b"").split(b",")[:_MAX_NAMES]
    names = b",".join(name for each in asked if _NAME.fullmatch(name := each.strip()))
    headers = [
        (b"access-control-allow-methods", _METHODS),
        (b"access-control-max-age", _KEPT_S),
        *([(b"access-control-allow-headers", names)] if names else []),
    ]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


def _value(scope: Scope, name: bytes) -> bytes | None:
    """The value of the only header of that *name*."""
    values: list[bytes] = [value.strip() for key, value in scope["headers"] if key == name]
    return values[0] if len(values) == 1 else None

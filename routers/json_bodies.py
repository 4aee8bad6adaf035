"""JSON as it comes in and goes out by hand, where refusals have our shape."""

import json
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse

from app.json_body import NotAnObject, TooManyValues, read_object
from routers.refusals import refuse


class SurrogateJson(JSONResponse):
    """Escapes what UTF-8 cannot encode: texts of tools and callers may hold half a surrogate pair."""

    def render(self, content: Any) -> bytes:
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return json.dumps(content, separators=(",", ":"), allow_nan=False).encode("ascii")


async def json_object(request: Request, max_values: int) -> dict[str, Any] | JSONResponse:
    """The object in the body, or the refusal of any other body."""
    try:
        body = json.loads(await read_object(request.receive, max_values))
    except TooManyValues as error:
        return refuse(413, "payload_too_large", str(error))
    except (NotAnObject, ValueError, RecursionError):
        body = None
    if isinstance(body, dict):
        return body
    return refuse(400, "invalid_request", "Request body must be a JSON object")

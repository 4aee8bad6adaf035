"""The one shape in which anything in front of the routes says no: ``{code, message}`` (S3 "Pre-Stream Errors")."""

import json
from collections.abc import Iterable

from starlette.types import Send


async def send_refusal(
    send: Send, status: int, code: str, message: str, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    body = json.dumps({"code": code, "message": message}).encode()
    await send(
        {
            "type": "http.response.start",
            "status": status,
            "headers": [
                (b"content-type", b"application/json"),
                (b"content-length", str(len(body)).encode()),
                *headers,
            ],
        }
    )
    await send({"type": "http.response.body", "body": body})

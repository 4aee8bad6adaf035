"""``POST /console/api/sign-in``: exchanges the code of the sign-in link for the key of this start (OPS-259)."""

import json

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from app.console.sign_in import SignIn
from app.json_body import read_short
from routers.console import PREFIX, data_router
from routers.refusals import refuse

SIGN_IN_PATH = f"{PREFIX}/sign-in"
_MOST_BYTES = 1_000
_BODY = {
    "security": [],
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {"type": "object", "required": ["code"], "properties": {"code": {"type": "string"}}}
            }
        },
    },
}


class SignedIn(BaseModel):
    """The key, to be sent as ``Authorization: Bearer``."""

    key: str


def sign_in_router(sign_in: SignIn | None) -> APIRouter:
    """*sign_in* is None where no key was made at this start: then no code is right."""
    router = data_router()

    @router.post("/sign-in", operation_id="console_sign_in", response_model=SignedIn, openapi_extra=_BODY)
    async def exchange(request: Request) -> Response | SignedIn:
        """Exchanges the code of the link that was printed at the start for the key of that start. Good once, for ten
        minutes. It needs no credential."""
        code = _code(await read_short(request.receive, _MOST_BYTES))
        if code is None:
            return refuse(400, "invalid_request", 'The body must be {"code": "..."}')
        key = sign_in.exchange(code) if sign_in is not None else None
        if key is None:
            return refuse(401, "unauthorized", "This code is unknown, was used, or is too old")
        return SignedIn(key=key)

    return router


def _code(body: bytes | None) -> str | None:
    try:
        given = json.loads(body or b"")
    except (ValueError, RecursionError):
        return None
    code = given.get("code") if isinstance(given, dict) else None
    return code if isinstance(code, str) else None

"""A chat engine of a hundred lines that keeps the contract, and breaks it in one place on request.

It is its own ASGI application and shares nothing with the product but the reading of bodies.
"""

import asyncio
import json
from typing import Any

from starlette.types import Receive, Scope, Send

from wicketgate.engine.contract import InvalidRequest, parse_chat_request

KEY = "small-engine-credential"
MAX_BODY = 1_000_000

FAULTS = frozenset(
    {
        "a type in data",
        "arguments as text",
        "no end",
        "two ends",
        "text after the end",
        "an error and a done",
        "ends with tool_calls",
        "a sixth event",
        "two data lines",
        "not JSON",
        "a number that is none",
        "nested too deep",
        "broken utf-8",
        "cut body",
        "a collected body",
        "a leaking error",
        "a code of its own",
        "a result without a call",
        "a call without a result",
        "one id for two calls",
        "takes any object",
        "takes everybody",
        "falls over a cookie",
        "believes identity headers",
        "plain text 404",
        "obeys the model field",
        "knows the trigger",
        "mixes up traces",
        "no body limit",
        "never ends",
        "shows the credential",
        "dies of a hang-up",
        "more keys in refusals",
    }
)


class SmallEngine:
    def __init__(self, fault: str = "") -> None:
        self.break_with(fault)

    def break_with(self, fault: str) -> None:
        assert fault == "" or fault in FAULTS
        self.fault = fault
        self._dead = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http"
        headers = {name.decode().lower(): value.decode("latin-1") for name, value in scope["headers"]}
        received = bytearray()
        while True:
            message = await receive()
            received += message.get("body", b"")
            if not message.get("more_body"):
                break
        body = bytes(received)
        refusal = self._refusal(scope, headers, body)
        if refusal is not None:
            return await self._refuse(send, *refusal)
        request = json.loads(body)
        await self._stream(request, receive, send)

    def _refusal(self, scope: Scope, headers: dict[str, str], body: bytes) -> tuple[int, str, str] | None:
        if self._dead:
            return 503, "engine_unavailable", "gone"
        if self.fault == "falls over a cookie" and "%E0" in headers.get("cookie", ""):
            return 500, "internal_error", "URIError"
        known = headers.get("authorization") == f"Bearer {KEY}" or self.fault == "takes everybody"
        if not known and not (self.fault == "believes identity headers" and "x-actor-id" in headers):
            return 401, "unauthorized", "No credentials"
        if scope["path"] != "/engine/chat":
            return 404, "not_found", "Nothing here"
        if scope["method"] != "POST":
            return 405, "method_not_allowed", "POST it"
        if len(body) > MAX_BODY and self.fault != "no body limit":
            return 413, "payload_too_large", "Too large"
        try:
            if self.fault == "takes any object" and isinstance(json.loads(body), dict):
                return None
            parse_chat_request(body)
        except (InvalidRequest, ValueError) as error:
            leak = f" ({KEY})" if self.fault == "shows the credential" else ""
            return 400, "invalid_request", f"{error}{leak}"
        return None

    async def _refuse(self, send: Send, status: int, code: str, message: str) -> None:
        content = {"code": code, "message": message}
        if self.fault == "more keys in refusals":
            content["detail"] = "x"
        media, body = b"application/json", json.dumps(content).encode()
        if self.fault == "plain text 404" and status == 404:
            media, body = b"text/plain", b"404 Not Found"
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", media)]})
        await send({"type": "http.response.body", "body": body})

    async def _stream(self, request: dict[str, Any], receive: Receive, send: Send) -> None:
        metadata = request.get("metadata") or {}
        trace = str(metadata.get("correlation_id")) if isinstance(metadata, dict) else ""
        if self.fault == "mixes up traces":
            trace = "always-the-same"
        frames = self.frames(request, metadata if isinstance(metadata, dict) else {})
        headers = [(b"content-type", b"text/event-stream"), (b"x-correlation-id", trace.encode())]
        if self.fault == "a collected body":
            body = b"".join(frames)
            headers.append((b"content-length", str(len(body)).encode()))
            frames = [body]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        leaving = asyncio.ensure_future(receive())
        for frame in frames:
            await send({"type": "http.response.body", "body": frame, "more_body": True})
            await asyncio.sleep(0)
        while self.fault == "never ends" and not leaving.done():
            await send({"type": "http.response.body", "body": b": still there\n\n", "more_body": True})
            await asyncio.wait([leaving], timeout=0.01)
        if self.fault == "dies of a hang-up":
            await asyncio.wait([leaving], timeout=0.03)
            self._dead = leaving.done()
        leaving.cancel()
        if self.fault == "cut body":
            return
        await send({"type": "http.response.body", "body": b""})

    def frames(self, request: dict[str, Any], metadata: dict[str, Any]) -> list[bytes]:
        fault = self.fault
        word = "webhook" if fault == "knows the trigger" and metadata.get("trigger") == "webhook" else "Hello"
        if fault == "obeys the model field" and "model" in request:
            word = "I am another"
        text = {"content": word, **({"type": "text-delta"} if fault == "a type in data" else {})}
        call = {"id": "c1", "name": "look", "arguments": "{}" if fault == "arguments as text" else {}}
        result = {"id": "c9" if fault == "a result without a call" else "c1", "output": "seen"}
        done = {
            "finish_reason": "tool_calls" if fault == "ends with tool_calls" else "stop",
            "usage": {"prompt_tokens": 1, "completion_tokens": 2},
        }
        error = {
            "code": "internal_error" if fault == "a code of its own" else "provider_error",
            "message": 'File "/srv/app/loop.py", line 7' if fault == "a leaking error" else "It could not be done.",
        }
        frames = [b": hold on\n\n", frame("text-delta", text), frame("tool-call", call)]
        if fault == "one id for two calls":
            frames.append(frame("tool-call", call))
        if fault != "a call without a result":
            frames.append(frame("tool-result", result))
        if fault == "a sixth event":
            frames.append(frame("reasoning", {"content": "hm"}))
        if fault == "two data lines":
            frames.append(b'event: text-delta\ndata: {"content":\ndata: "x"}\n\n')
        if fault == "not JSON":
            frames.append(b"event: text-delta\ndata: [DONE\n\n")
        if fault == "a number that is none":
            frames.append(b'event: text-delta\ndata: {"content":NaN}\n\n')
        if fault == "nested too deep":
            frames.append(b"event: text-delta\ndata: %b\n\n" % (b"[" * 100_000))
        if fault == "broken utf-8":
            frames.append(b'event: text-delta\ndata: {"content":"\xff"}\n\n')
        if fault in ("a leaking error", "a code of its own", "an error and a done"):
            frames.append(frame("error", error))
        elif fault != "no end":
            frames.append(frame("done", done))
        if fault in ("two ends", "an error and a done"):
            frames.append(frame("done", done))
        if fault == "text after the end":
            frames.append(frame("text-delta", text))
        return frames


def frame(event: str, data: dict[str, Any]) -> bytes:
    return f"event: {event}\ndata: {json.dumps(data)}\n\n".encode()

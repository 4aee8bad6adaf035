"""All that is decided about an HTTP request before its route, in one ASGI middleware (OPS-503). Each decision has a
module; their order is here.

Address of the client, correlation id and log line, Host and Origin, CORS, drain, identity and key, body.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from app.pace import UNPACED, Pace
from middleware.answer import Answer
from middleware.auth import AuthGuard
from middleware.client_address import TrustedProxies, from_client
from middleware.correlation import AccessLog
from middleware.cors import answer_preflight, is_preflight, shown_to
from middleware.drain import admitted, is_waited_for
from middleware.hosts import HostCheck, HostRule
from middleware.refusals import BodyLimit, send_refusal
from middleware.trace import begin_span, end_span
from wicketgate.engine.limits import Drain

log = logging.getLogger("wicketgate.http")


@dataclass(frozen=True, slots=True)
class Front:
    """*readers* takes the origins whose pages may read answers; None if there are none. *refusal_of* makes the answer
    to an HTTPException that nothing has answered."""

    app: ASGIApp
    pace: Pace
    proxies: TrustedProxies
    access_log: AccessLog
    hosts: HostCheck
    readers: HostRule | None
    drain: Drain
    guard: AuthGuard
    bodies: BodyLimit
    refusal_of: Callable[[HTTPException], ASGIApp]

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http":
            work = self._serve(scope, receive, send)
            return work if scope["path"] in UNPACED else self.pace.run(work)
        if scope["type"] == "lifespan":
            return self.app(scope, receive, send)
        # No path takes a websocket, so it is closed before it is accepted.
        return send({"type": "websocket.close", "code": 1008})

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope = from_client(scope, self.proxies)
        answer = Answer(send, scope, self.drain)
        started = self.access_log.begin(scope)
        span = None if scope["path"] in UNPACED else begin_span(scope)
        try:
            await self._decide(scope, receive, answer)
        except ClientDisconnect:
            log.info("the client disconnected before its request was complete")
        except HTTPException as error:
            # A body that does not arrive as it must. Nothing was answered then.
            await self.refusal_of(error)(scope, receive, answer)
        except Exception:
            log.exception("unhandled failure")
            if not answer.status:
                await send_refusal(answer, 500, "internal_error", "Internal error")
            # A response that has begun cannot become an error; the server closes it short, which clients notice.
        finally:
            self.access_log.end(scope, started, answer.status, answer.began)
            if span is not None:
                end_span(span, answer.status)

    async def _decide(self, scope: Scope, receive: Receive, answer: Answer) -> None:
        refusal = self.hosts.refusal(scope)
        if refusal is not None:
            return await refusal.send(answer)
        if self.readers is not None:
            answer.shown = shown_to(scope, self.readers)
            if answer.shown and is_preflight(scope):
                return await answer_preflight(scope, answer)
        drain = self.drain
        if drain.phase != "serving" or not drain.started():
            goes_on = await admitted(drain, scope, receive, answer)
            if goes_on is None:
                return None
            receive = goes_on
        if not is_waited_for(scope):
            return await self.guard.serve(self._within_bounds, scope, receive, answer)
        drain.request_begun()
        try:
            return await self.guard.serve(self._within_bounds, scope, receive, answer)
        finally:
            drain.request_ended()

    def _within_bounds(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        refusal = self.bodies.refusal(scope)
        if refusal is not None:
            return refusal.send(send)
        return self.app(scope, self.bodies.counted(receive), send)

"""Clients of one process that a call in another speaks to (FACE-107)."""

import asyncio
import secrets
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any

from wicketgate.gateway.peer_json import as_payload, from_payload
from wicketgate.peers import NotReached, Payload, Peers
from wicketgate.ports import AnswerTime, Caller, CannotAsk

_OPERATION = "caller"
_MAX_WAITING = 100
_LAST_WORDS_S = 1.0
ANSWERS_WITHIN_S = 600.0


class LentCallers:
    """The clients that wait here for calls in other processes."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._lent: dict[str, Caller] = {}
        peers.answer(_OPERATION, self._speak)

    @contextmanager
    def lending(self, caller: Caller) -> Iterator[Mapping[str, Any]]:
        """JSON from which another process makes a LentCaller."""
        token = secrets.token_hex(8)
        self._lent[token] = caller
        try:
            yield {
                "peer": self._peers.own_id,
                "token": token,
                "answers": caller.answers,
                "capabilities": dict(caller.capabilities),
            }
        finally:
            del self._lent[token]

    def lent(self, given: Mapping[str, Any]) -> "LentCaller":
        return LentCaller(self._peers, given)

    async def _speak(self, payload: Payload) -> Payload:
        said = from_payload(payload)
        caller = self._lent.get(said["token"])
        if caller is None:
            raise NotReached
        for method, given in said["said"]:
            if method == "progress":
                await caller.progress(*given)
            elif method == "log":
                await caller.log(*given)
            elif method == "page_done":
                await caller.page_done(*given)
        if "ask" not in said:
            return await as_payload({})
        try:
            return await as_payload({"answer": dict(await caller.ask(*said["ask"]))})
        except CannotAsk as cannot:
            return await as_payload({"rejected": cannot.rejected})


class LentCaller:
    """Implements Caller for a client of another process. Notifications never delay the tool server."""

    def __init__(self, peers: Peers, given: Mapping[str, Any]) -> None:
        self.answers: AnswerTime = given["answers"]
        self.capabilities: Mapping[str, Any] = given["capabilities"]
        self._peers = peers
        self._peer: str = given["peer"]
        self._token: str = given["token"]
        self._waiting = deque[tuple[str, list[Any]]](maxlen=_MAX_WAITING)
        self._sending: asyncio.Task[None] | None = None

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        self._say("progress", [progress, total, message])

    async def log(self, level: str, data: object, logger: str | None) -> None:
        self._say("log", [level, data, logger])

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = await self._sent({"ask": [method, dict(params)]}, ANSWERS_WITHIN_S)
        except NotReached:
            raise CannotAsk(method) from None
        if "answer" not in answer:
            raise CannotAsk(method, rejected=bool(answer.get("rejected")))
        return dict(answer["answer"])

    def pending(self) -> AbstractContextManager[None]:
        return nullcontext()

    async def page_done(self, elicitation_id: str) -> None:
        self._say("page_done", [elicitation_id])

    async def finish(self) -> None:
        """Let what was said reach the client before the result."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_LAST_WORDS_S)
            self._sending.cancel()

    def _say(self, method: str, given: list[Any]) -> None:
        self._waiting.append((method, given))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._say_all())

    async def _say_all(self) -> None:
        with suppress(NotReached):
            while self._waiting:
                await self._sent({}, _LAST_WORDS_S)

    async def _sent(self, more: Mapping[str, Any], timeout_s: float) -> Any:
        said = list(self._waiting)
        self._waiting.clear()
        payload = await as_payload({"token": self._token, "said": said, **more})
        return from_payload(await self._peers.ask(self._peer, _OPERATION, payload, timeout_s))

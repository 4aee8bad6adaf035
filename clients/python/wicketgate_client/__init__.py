"""A client of Wicketgate's engine: streams chats, resumes, approves and cancels them."""

import asyncio
import json
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import httpx

Decision = Literal["approve", "deny"]


class WicketgateError(Exception):
    """The base of all errors of this client."""


class Refused(WicketgateError):
    """The gate refused the request; nothing was started."""

    def __init__(self, response: httpx.Response) -> None:
        try:
            body = response.json()
            self.code, self.message = str(body["code"]), str(body["message"])
        except (ValueError, KeyError, TypeError):  # from a proxy, for example
            self.code, self.message = "unknown", response.text[:200]
        self.status = response.status_code
        after = response.headers.get("Retry-After", "")
        self.retry_after_s = float(after) if after.isdecimal() else None
        super().__init__(f"{self.status} {self.code}: {self.message}")


class ChatFailed(WicketgateError):
    """The stream ended in ``error``; *code* is ``provider_error``, ``tool_error`` or ``context_overflow``."""

    def __init__(self, code: str, message: str) -> None:
        self.code, self.message = code, message
        super().__init__(f"{code}: {message}")


class ConnectionLost(WicketgateError):
    """The connection ended before the stream did. With an idempotency key, the run can still be resumed."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    content: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """Has either *output*, the JSON text of the result, or *error*."""

    id: str
    output: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Done:
    finish_reason: str
    usage: dict[str, int]


Event = TextDelta | ToolCall | ToolResult | Done


class Chat:
    """One chat; iterate over it once, inside ``async with``. Leaving the block before ``done`` cancels the run.

    After ``done``, *messages* is the history including this answer. *waiting* has the calls that wait for the caller's
    own decision, by the id of the approval. Use both for the next chat.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        messages: str | Sequence[Mapping[str, Any]],
        approvals: Mapping[str, Decision],
        key: str | None,
        last_event_id: str | None,
        headers: Mapping[str, str],
        retries: int,
        metadata: Mapping[str, Any],
    ) -> None:
        given = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        self.messages: list[dict[str, Any]] = [dict(message) for message in given]
        self.waiting: dict[str, ToolCall] = {}
        self.text, self.last_event_id = "", last_event_id
        self.done: Done | None = None
        self._http, self._key, self._retries, self._failures = http, key, retries, 0
        self._given, self._calls, self._fields = len(self.messages), dict[str, ToolCall](), dict[str, str]()
        self._headers = {"Content-Type": "application/json", **({"Idempotency-Key": key, **headers} if key else {})}
        decisions = [{"id": id, "decision": decision} for id, decision in approvals.items()]
        about = {"correlation_id": uuid.uuid4().hex, "approvals": decisions, **metadata}
        self._body = json.dumps({"messages": self.messages, "metadata": about}).encode()
        self._events = self._run()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._events.aclose()

    def __aiter__(self) -> AsyncGenerator[Event, None]:
        return self._events

    async def _run(self) -> AsyncGenerator[Event, None]:
        while self.done is None:
            headers = self._headers | ({"Last-Event-ID": self.last_event_id} if self.last_event_id else {})
            request = self._http.stream("POST", "engine/chat", content=self._body, headers=headers)
            try:
                async with request as response:
                    if response.status_code != 200:
                        await response.aread()
                        raise Refused(response)
                    async for line in response.aiter_lines():
                        if (event := self._read(line)) is not None:
                            yield event
                if self.done is None:
                    raise ConnectionLost("the stream ended without done or error")
            except (WicketgateError, httpx.TransportError) as error:
                await asyncio.sleep(self._wait_s(error))

    def _wait_s(self, error: Exception) -> float:
        """Returns the wait before the next attempt. Raises if another attempt is useless or could run a tool twice."""
        refused = isinstance(error, Refused) and error.status in (429, 503)
        lost = isinstance(error, ConnectionLost | httpx.TransportError)
        unsent = isinstance(error, httpx.ConnectError)
        self._failures, self._fields = self._failures + 1, {}
        if self._failures > self._retries or not (refused or unsent or (lost and self._key)):
            raise ConnectionLost(str(error) or type(error).__name__) if lost else error
        after = error.retry_after_s if isinstance(error, Refused) else None
        return min(0.25 * 2**self._failures, 10.0) if after is None else after

    def _read(self, line: str) -> Event | None:
        if line:
            name, _, value = line.partition(": ")
            self._fields[name] = value
            return None
        fields, self._fields = self._fields, {}
        if "event" not in fields:
            return None  # a comment
        data = json.loads(fields["data"])
        self.last_event_id, self._failures = fields.get("id", self.last_event_id), 0
        match fields["event"]:
            case "text-delta":
                self.text += data["content"]
                self._answer()["content"] += data["content"]
                return TextDelta(data["content"])
            case "tool-call":
                return self._call(ToolCall(data["id"], data["name"], data["arguments"]))
            case "tool-result":
                return self._result(ToolResult(data["id"], data.get("output"), data.get("error")))
            case "done":
                self.done = Done(data["finish_reason"], data["usage"])
                return self.done
            case "error":
                raise ChatFailed(data["code"], data["message"])
        return None  # an event of a later version

    def _answer(self) -> dict[str, Any]:
        if len(self.messages) == self._given or self.messages[-1]["role"] != "assistant":
            self.messages.append({"role": "assistant", "content": ""})
        return self.messages[-1]

    def _call(self, call: ToolCall) -> ToolCall:
        self._calls[call.id] = call
        known = (each["id"] for message in self.messages for each in message.get("tool_calls") or ())
        if call.id not in known:  # otherwise an approved call of the given history
            function = {"name": call.name, "arguments": json.dumps(call.arguments)}
            self._answer().setdefault("tool_calls", []).append(
                {"id": call.id, "type": "function", "function": function}
            )
        return call

    def _result(self, result: ToolResult) -> ToolResult:
        # Lines below the first say why a call waits.
        kind, _, approval = (result.error or "").partition("\n")[0].partition(" ")
        if kind == "approval_required" and " " not in approval and result.id in self._calls:  # others name approvers
            self.waiting[approval] = self._calls[result.id]
        answered = {message.get("tool_call_id"): message for message in self.messages}
        message = answered.get(result.id) or {"role": "tool", "tool_call_id": result.id}
        if result.id not in answered:
            self.messages.append(message)
        message["content"] = result.error if result.output is None else result.output
        return result


class Client:
    """*timeout_s* bounds silence: the gate sends a comment every few seconds while nothing happens."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    def chat(
        self,
        messages: str | Sequence[Mapping[str, Any]],
        *,
        approvals: Mapping[str, Decision] | None = None,
        idempotency_key: str | None = None,
        last_event_id: str | None = None,
        on_disconnect: Literal["cancel", "continue"] = "cancel",
        retries: int = 5,
        **metadata: Any,
    ) -> Chat:
        """With *idempotency_key* a lost connection is resumed, *retries* times without progress at most; the same
        arguments and *last_event_id* resume the run from elsewhere. *metadata*: ``conversation_id`` and the like."""
        headers = {"X-On-Disconnect": on_disconnect}
        return Chat(self._http, messages, approvals or {}, idempotency_key, last_event_id, headers, retries, metadata)

    async def approvals(self) -> list[dict[str, Any]]:
        """Returns the calls that wait for a decision and that this key may see; decide if ``may_decide``."""
        waiting: list[dict[str, Any]] = (await self._json("GET", "console/api/approvals"))["waiting"]
        return waiting

    async def decide(self, id: str, decision: Decision) -> bool:
        """Decides on a call of *approvals*. Returns False while it waits for another approver."""
        answer = await self._json("POST", f"console/api/approvals/{id}", json={"decision": decision})
        return bool(answer["complete"])

    async def _json(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        try:
            response = await self._http.request(method, path, **body)
        except httpx.TransportError as error:
            raise ConnectionLost(str(error) or type(error).__name__) from error
        if response.status_code != 200:
            raise Refused(response)
        answer: dict[str, Any] = response.json()
        return answer

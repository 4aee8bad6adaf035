"""The model behind a chat-completions endpoint, over HTTP (DESIGN §2 "model")."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import httpx

from wicketgate.errors import EngineError
from wicketgate.models.endpoint import ModelAddress, ModelEndpoint, Refusal, checked_key, ended_by_filter
from wicketgate.models.late_stream import LateStream, Stream, first_of, nothing_more
from wicketgate.models.openai.dialect import DIALECTS, Dialect
from wicketgate.models.openai.request import chat_body, optional_fields, without
from wicketgate.models.openai.stream import ChatStream
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest
from wicketgate.models.tool_calls import unreadable_call
from wicketgate.models.turn_reading import readable


class OpenAIChatProvider:
    """A Provider. The address is the root that ``/chat/completions`` stands under; *context_tokens* the model's window.

    *max_tokens* bounds each answer, None leaves it to the server; *extra* are fields for every request's body.
    """

    def __init__(
        self,
        address: ModelAddress,
        model: str,
        *,
        context_tokens: int,
        dialect: Dialect = DIALECTS["compatible"],
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        headers = {"Authorization": f"Bearer {checked_key(address.api_key)}"} if address.api_key else {}
        self._endpoint = ModelEndpoint(address, address.base_url.rstrip("/") + "/chat/completions", headers)
        self._model = model
        self._context_tokens = context_tokens
        self._dialect = dialect
        self._max_tokens = max_tokens
        self._extra = extra
        self._origin = f"openai-chat {address.base_url} {model}"
        self._refused: frozenset[str] = frozenset()

    async def aclose(self) -> None:
        """Close the connections. Streams that are open break off."""
        await self._endpoint.aclose()

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        """One attempt, no retry. Raises ProviderError or ContextOverflow, see Provider."""
        return LateStream(partial(self._begin, request))

    async def _begin(self, request: ModelRequest) -> tuple[Sequence[ModelEvent], Stream[Sequence[ModelEvent]]]:
        first_event_by = self._endpoint.first_event_by()
        try:
            opened = await self._open(request, first_event_by)
            if isinstance(opened, Refusal):
                return _turn_in(opened), nothing_more()
        except EngineError as error:
            self._endpoint.for_the_log(error)
            raise error from None
        turn = ChatStream(self._context_tokens, self._origin)
        return await first_of(self._endpoint.read(opened, turn, first_event_by))

    async def _open(self, request: ModelRequest, deadline: float) -> httpx.Response | Refusal:
        """The response. Fields that the server does not know are left out, and stay out once that has helped."""
        body = self._body(request)
        refused = self._refused
        while True:
            sent = without(body, refused)
            opened = await self._endpoint.open(sent, request.correlation_id, deadline)
            if not isinstance(opened, Refusal):
                self._refused = refused
                return opened
            named = {field for field in optional_fields(sent) if opened.names(field)}
            if not named:
                return opened
            refused |= named

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        return chat_body(
            self._model,
            request.messages,
            [tool.definition() for tool in request.tools],
            self._dialect,
            origin=self._origin,
            max_tokens=self._max_tokens,
            extra=self._extra,
        )


def _turn_in(refusal: Refusal) -> list[ModelEvent]:
    """The turn that some refusals are; every other is raised."""
    match refusal.kind:
        case "filtered":
            return ended_by_filter()
        case "bad_call":
            return [unreadable_call(readable(refusal.body)), Finish("tool_calls", None)]
        case _:
            raise refusal.error()

"""The model behind a chat-completions endpoint, over HTTP (CHAT-61)."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import httpx

from wicketgate.models.endpoint import ErrorResponse, ModelAddress, ModelEndpoint, checked_key
from wicketgate.models.openai.request import DIALECTS, Dialect, chat_body, optional_fields, without_fields
from wicketgate.models.openai.stream import ChatStream
from wicketgate.models.provider import Finish, LateStream, ModelEvent, ModelRequest, Stream, empty_stream, first_of
from wicketgate.models.tool_calls import unreadable_call
from wicketgate.models.turn_reading import readable


class OpenAIChatProvider:
    """A Provider. The address is the root of ``/chat/completions``; *context_tokens* is the model's window.

    *max_tokens* bounds each answer; None leaves the bound to the server. *extra* holds fields for the body of every
    request.
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
        self._context_tokens = context_tokens
        self._max_tokens = max_tokens
        self._origin = f"openai-chat {address.base_url} {model}"
        self._body = partial(
            chat_body, model=model, dialect=dialect, origin=self._origin, max_tokens=max_tokens, extra=extra
        )
        self._refused: frozenset[str] = frozenset()

    async def aclose(self) -> None:
        """Close the connections. Open streams break off."""
        await self._endpoint.aclose()

    def stream(self, request: ModelRequest) -> Stream[Sequence[ModelEvent]]:
        """Make one attempt, no retry. Raises ProviderError or ContextOverflow, see Provider."""
        return LateStream(partial(self._begin, request))

    async def _begin(self, request: ModelRequest) -> tuple[Sequence[ModelEvent], Stream[Sequence[ModelEvent]]]:
        first_event_by = self._endpoint.first_event_by()
        response = await self._open(request, first_event_by)
        if not isinstance(response, ErrorResponse):
            turn = ChatStream(self._context_tokens, self._origin, self._max_tokens)
            return await first_of(self._endpoint.read(response, turn, first_event_by, request.take_text))
        # Some error responses are a turn; every other is raised.
        match response.kind:
            case "filtered":
                return [Finish("content_filter", None)], empty_stream()
            case "bad_call":
                return [unreadable_call(readable(response.body)), Finish("tool_calls", None)], empty_stream()
            case _:
                raise self._endpoint.failure(response) from None

    async def _open(self, request: ModelRequest, deadline: float) -> httpx.Response | ErrorResponse:
        """The response. Leaves out fields that the server refuses, and keeps them out once that has helped."""
        body = self._body(request.messages, request.tools)
        refused = self._refused
        while True:
            sent = without_fields(body, refused)
            response = await self._endpoint.open(sent, request, deadline)
            if not isinstance(response, ErrorResponse):
                self._refused = refused
                return response
            named = {field for field in optional_fields(sent) if response.refuses(field)}
            if not named:
                return response
            refused |= named

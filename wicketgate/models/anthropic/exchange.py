"""The model behind an Anthropic Messages endpoint, over HTTP (CHAT-61)."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from wicketgate.models.anthropic.request import messages_body
from wicketgate.models.anthropic.stream import MessagesStream
from wicketgate.models.endpoint import ErrorResponse, ModelAddress, ModelEndpoint, checked_key
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest

_VERSION = "2023-06-01"


class AnthropicMessagesProvider:
    """A Provider. The address is the root, with or without its ``/v1``; *context_tokens* is the model's window.

    *max_tokens* bounds each answer, as the provider demands; *extra* holds fields for the body of every request.
    """

    def __init__(
        self,
        address: ModelAddress,
        model: str,
        *,
        context_tokens: int,
        max_tokens: int,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        headers = {"anthropic-version": _VERSION}
        if address.api_key:
            headers["x-api-key"] = checked_key(address.api_key)
        root = address.base_url.rstrip("/").removesuffix("/v1")
        self._endpoint = ModelEndpoint(address, f"{root}/v1/messages", headers)
        self._context_tokens = context_tokens
        self._max_tokens = max_tokens
        self._origin = f"anthropic-messages {address.base_url} {model}"
        self._body = partial(messages_body, model=model, max_tokens=max_tokens, origin=self._origin, extra=extra)

    async def aclose(self) -> None:
        """Close the connections. Open streams break off."""
        await self._endpoint.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """Make one attempt, no retry. Raises ProviderError or ContextOverflow, see Provider."""
        first_event_by = self._endpoint.first_event_by()
        response = await self._endpoint.open(self._body(request.messages, request.tools), request, first_event_by)
        if isinstance(response, ErrorResponse):
            if response.kind != "filtered":
                raise self._endpoint.failure(response) from None
            yield [Finish("content_filter", None)]
            return
        turn = MessagesStream(self._context_tokens, self._origin, self._max_tokens)
        async with aclosing(self._endpoint.read(response, turn, first_event_by)) as batches:
            async for batch in batches:
                yield batch

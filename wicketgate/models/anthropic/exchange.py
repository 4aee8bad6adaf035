"""The model behind an Anthropic Messages endpoint, over HTTP (DESIGN §2 "model")."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from wicketgate.errors import EngineError, ProviderError
from wicketgate.models.anthropic.request import messages_body
from wicketgate.models.anthropic.stream import MessagesStream
from wicketgate.models.endpoint import ModelAddress, ModelEndpoint, Refusal, checked_key, ended_by_filter
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, Usage

_VERSION = "2023-06-01"
_MOST_PAUSES = 8


class AnthropicMessagesProvider:
    """A Provider. The address is the root, with or without its ``/v1``; *context_tokens* the model's window.

    *max_tokens* bounds each answer, which the provider demands; *extra* are fields for every request's body.
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
        self._model = model
        self._context_tokens = context_tokens
        self._max_tokens = max_tokens
        self._extra = extra
        self._origin = f"anthropic-messages {address.base_url} {model}"

    async def aclose(self) -> None:
        """Close the connections. Streams that are open break off."""
        await self._endpoint.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """One attempt, no retry. Raises ProviderError or ContextOverflow, see Provider.

        A turn that the provider pauses is sent back as it is and goes on: one turn for the caller.
        """
        said: list[dict[str, Any]] = []
        used: Usage | None = None
        try:
            for _ in range(_MOST_PAUSES):
                first_event_by = self._endpoint.first_event_by()
                opened = await self._endpoint.open(self._body(request, said), request.correlation_id, first_event_by)
                if isinstance(opened, Refusal):
                    if opened.kind != "filtered":
                        raise opened.error()
                    yield ended_by_filter()
                    return
                turn = MessagesStream(self._context_tokens, self._origin)
                async with aclosing(self._endpoint.read(opened, turn, first_event_by)) as batches:
                    async for batch in batches:
                        if not turn.ended:
                            yield batch
                            continue
                        finish = batch[-1]
                        assert isinstance(finish, Finish)
                        used = _sum(used, finish.usage)
                        if rest := [*batch[:-1], *([] if turn.paused else [Finish(finish.reason, used, finish.kept)])]:
                            yield rest
                if not turn.paused:
                    return
                said += turn.content()
            raise ProviderError(f"the provider paused one turn {_MOST_PAUSES} times")
        except EngineError as error:
            self._endpoint.for_the_log(error)
            raise error from None

    def _body(self, request: ModelRequest, said: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return messages_body(
            self._model,
            request.messages,
            [tool.definition() for tool in request.tools],
            self._max_tokens,
            origin=self._origin,
            extra=self._extra,
            paused=said,
        )


def _sum(one: Usage | None, other: Usage | None) -> Usage | None:
    return one + other if one is not None and other is not None else one or other

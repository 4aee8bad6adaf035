"""How much of the model's window a conversation may take, and what of it is shown (DESIGN §3 "Long conversations")."""

import asyncio
import json
from collections.abc import Sequence

from wicketgate.context.build import Built, TextCounter, build
from wicketgate.models.provider import Message, ModelTool

# The framing of a tool definition beyond its JSON, rounded up.
_TOOL_TOKENS = 16
# What takes longer to count, the first time, than a stream beside it should wait; a message costs as much as its text
# and some.
_BULKY_CHARS = 100_000
_MESSAGE_CHARS = 100


class ModelWindow:
    """A model's window of *context_tokens*, of which *answer_tokens* are kept free for its answer.

    The answer's share is never more than half of what the tool definitions leave. *tokens* should remember what it
    counted (CountedTexts), since a history comes back with each turn.
    """

    def __init__(self, context_tokens: int, answer_tokens: int, tokens: TextCounter) -> None:
        self._context_tokens = context_tokens
        self._answer_tokens = answer_tokens
        self._tokens = tokens
        self._latest: tuple[Sequence[ModelTool], int] = ((), 0)

    async def show(self, messages: Sequence[Message], tools: Sequence[ModelTool]) -> Built:
        """What the model is shown of *messages*. Raises ContextOverflow. A bulky history is counted in a thread."""
        if sum(map(_chars, messages)) > _BULKY_CHARS:
            return await asyncio.to_thread(self._build, tuple(messages), tools)
        return self._build(messages, tools)

    def _build(self, messages: Sequence[Message], tools: Sequence[ModelTool]) -> Built:
        definitions = self._definitions(tools)
        answer = min(self._answer_tokens, max(self._context_tokens - definitions, 0) // 2)
        return build(messages, self._context_tokens, self._tokens, reserve_tokens=definitions + answer)

    def _definitions(self, tools: Sequence[ModelTool]) -> int:
        """Tokens of the definitions: mostly the same for every stream, and then not written out again."""
        latest, tokens = self._latest
        if latest != tools:
            tokens = sum(self._tokens.count(_definition(tool)) + _TOOL_TOKENS for tool in tools)
            self._latest = (tools, tokens)
        return tokens


def _chars(message: Message) -> int:
    arguments = sum(len(call["function"]["arguments"]) for call in message.get("tool_calls", ()))
    return _MESSAGE_CHARS + len(message["content"]) + arguments


def _definition(tool: ModelTool) -> str:
    return json.dumps([tool.name, tool.description, dict(tool.parameters)], ensure_ascii=False)

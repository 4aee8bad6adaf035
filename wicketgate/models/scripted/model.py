"""The ``scripted`` provider: a small deterministic stand-in for an LLM; the demo then needs no account, no network.

It understands nothing. It follows one script (see ``scripted_dialogue``) and says in every answer that it does.
"""

import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from wicketgate.errors import ProviderError
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta, ToolCall, Usage
from wicketgate.models.scripted.dialogue import next_move
from wicketgate.models.scripted.steps import Call

_GROUP_WORDS = 6
_GROUP = re.compile(rf"\s*(?:\S+\s*){{1,{_GROUP_WORDS}}}")


class ScriptedModel:
    """Implements Provider. Stateless: the same request always gives the same events.

    Usage counts words, not tokens: there is no tokenizer here to count with.
    """

    async def aclose(self) -> None:
        """It holds nothing."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """One call, or an answer in groups of words, each in its own batch; then Finish.

        Raises ProviderError on tool messages that no gateway face has written.
        """
        read = sum(_words(message) for message in request.messages)
        try:
            move = next_move(request.messages, {tool.name for tool in request.tools})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ProviderError("the script does not know such a conversation") from error
        if isinstance(move, Call):
            raw = json.dumps(move.arguments, ensure_ascii=False)
            made = sum(len(message.get("tool_calls") or ()) for message in request.messages)
            yield [ToolCall(f"call_{made + 1}", move.name, move.arguments, raw)]
            yield [Finish("tool_calls", Usage(read, len(raw.split())))]
            return
        for group in _GROUP.findall(move.text):
            yield [TextDelta(group)]
        yield [Finish("stop", Usage(read, len(move.text.split())))]


def _words(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls") or ()
    texts = [str(message.get("content") or ""), *(str(call["function"]["arguments"]) for call in calls)]
    return sum(len(text.split()) for text in texts)

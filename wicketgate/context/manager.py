"""A prompt from a conversation: what the phase needs, the turns that a query is about, within a budget of tokens
(LIB-13 to LIB-16).

A large tool result never enters the prompt. It goes through the same firewall as the gateway's own results; the
prompt has its summary and its handle, and the manager keeps the whole of it. Everything here is deterministic: equal
items, phase and query give an equal prompt, byte for byte.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from wicketgate.catalog.card import one_line
from wicketgate.catalog.tool_id import ToolId, derive_tool_id, parse_tool_id
from wicketgate.catalog.words import content_terms, synonyms, terms
from wicketgate.context.build import ChatMessage, CountedTexts, build, shrink
from wicketgate.context.items import ContextItem, ItemKind, messages_from_items
from wicketgate.errors import CatalogError, ViewFailed
from wicketgate.results.envelope import ArtifactRef
from wicketgate.results.firewall import SealedArtifact, seal_result
from wicketgate.results.selector import select
from wicketgate.results.view import View
from wicketgate.tokens import TokenCounter, shipped_token_counter

_MAX_QUERY_TERMS = 48
_MAX_READ_CHARS = 16_384
"""Of an item; the terms beyond it are not looked for."""
_SYNONYM_WEIGHT = 0.3
_BETWEEN_PARTS = "\n\n"

# A text must not look like the heading of another message.
_HEADING = re.compile(r"(^|[\r\x85\u2028\u2029])\[(?=(?:system|user|assistant|tool call|tool result)\b)", re.MULTILINE)


class Phase(StrEnum):
    """The purpose of a prompt.

    ``route``: choosing a tool; what was said, without calls and results. ``call``: filling in the arguments of a
    call. ``interpret``: reading results; without the agent's own messages. ``answer``: answering the user.
    """

    route = "route"
    call = "call"
    interpret = "interpret"
    answer = "answer"


BUDGET_TOKENS: Mapping[Phase, int] = {
    Phase.route: 2_000,
    Phase.call: 3_000,
    Phase.interpret: 4_000,
    Phase.answer: 6_000,
}
"""The tokens that the prompt of each phase may take, where the caller gives no budget."""

_LEFT_OUT_OF = {
    Phase.route: frozenset({ItemKind.tool_call, ItemKind.tool_result}),
    Phase.interpret: frozenset({ItemKind.agent_msg}),
}


@dataclass(frozen=True, slots=True)
class ContextPack:
    """*prompt* is one text of *tokens* tokens; *messages* is the same for chat completions.

    *included* and *left_out* are ids of items, in the order in which they were ingested. *artifacts* are those of the
    results that are included; ``ContextManager.view`` reads them.
    """

    prompt: str
    messages: tuple[ChatMessage, ...]
    tokens: int
    included: tuple[str, ...]
    left_out: tuple[str, ...]
    artifacts: tuple[ArtifactRef, ...]


class ContextManager:
    """The items of one conversation, and the artifacts of its results, kept as long as the manager itself.

    Use it from one thread at a time. *tokens* counts as cl100k_base, exactly, if it is not given.
    """

    def __init__(self, tokens: TokenCounter | None = None) -> None:
        self._tokens = tokens or shipped_token_counter()
        self._counted = CountedTexts(self._tokens)
        self._items: dict[str, ContextItem] = {}
        self._artifacts: dict[str, SealedArtifact] = {}
        self._shown: dict[str, tuple[ArtifactRef, ...]] = {}
        """By the id of a result's item, the artifacts that its envelope names."""

    @property
    def items(self) -> tuple[ContextItem, ...]:
        return tuple(self._items.values())

    def ingest(self, item: ContextItem) -> None:
        """Add *item*, as it is, at the end. Raises ValueError when its id was used before."""
        if item.id in self._items:
            raise ValueError(f"the id {item.id!r} is used twice")
        self._items[item.id] = item

    def ingest_tool_result(
        self, *, tool_call_id: str, raw_output: str | Mapping[str, Any], tool_name: str
    ) -> ContextItem:
        """Add a tool's result at the end, behind the firewall, and return its item.

        *raw_output* is a text, or an MCP result in wire JSON. The item's text is the page of the result: a short one
        whole, of a long one a head, counts and the handle for ``view``.
        """
        result = {"content": [{"type": "text", "text": raw_output}]} if isinstance(raw_output, str) else raw_output
        sealed = seal_result(result, _tool_id(tool_name), tool_name, self._tokens)
        self._artifacts.update({artifact.ref.handle: artifact for artifact in sealed.artifacts})
        item_id, number = f"{tool_call_id}:result", 1
        while item_id in self._items:
            number += 1
            item_id = f"{tool_call_id}:result:{number}"
        item = ContextItem(item_id, ItemKind.tool_result, sealed.page, tool_call_id, {"tool": tool_name})
        self._items[item_id] = item
        self._shown[item_id] = sealed.envelope.artifacts
        return item

    def view(self, handle: str, selector: object) -> View:
        """A bounded part of an artifact, by the selectors of ``tool_view``. Raises ViewFailed."""
        artifact = self._artifacts.get(handle)
        if artifact is None:
            raise ViewFailed("No such artifact.", path=handle)
        return select(artifact.data, artifact.ref.media_type, selector)

    def build_sync(self, *, phase: Phase, query: str = "", budget_tokens: int | None = None) -> ContextPack:
        """Returns a prompt of at most *budget_tokens*, counted exactly. Raises ContextOverflow when that is too few.

        System messages and the latest turn stay (of a turn that is too long, results and the oldest steps give way).
        Earlier turns are kept by what they have in common with *query*, newer ones first where that is equal; where
        room is short, their results are shown by summary and handle. The query itself is not part of the prompt.
        """
        budget = BUDGET_TOKENS[phase] if budget_tokens is None else budget_tokens
        kept = [item for item in self._items.values() if item.kind not in _LEFT_OUT_OF.get(phase, ())]
        turns = _turns(messages_from_items(kept))
        ranked = self._by_relevance(turns[:-1], query)
        messages = self._chosen(turns, ranked, budget, note_tokens=self._count(_left_out_note(len(kept))))
        pack = self._pack(kept, messages)
        room = budget
        while pack.tokens > budget:
            # The system messages and the latest turn alone are too long.
            pack = self._pack(kept, build(messages, room, self._counted).messages)
            room -= pack.tokens - budget
        return pack

    def _chosen(
        self, turns: Sequence[Sequence[ChatMessage]], ranked: Sequence[int], room: int, note_tokens: int
    ) -> list[ChatMessage]:
        """The messages to be shown in *room* tokens, in their order; *ranked* are places of earlier turns."""
        if sum(map(self._size, turns)) <= room:
            return [message for turn in turns for message in turn]
        short = [[_shortened(message) for message in turn] for turn in turns]
        # System messages and the latest turn are there in any case.
        shown: list[Sequence[ChatMessage]] = [[m for m in turn if m["role"] == "system"] for turn in turns[:-1]]
        shown += turns[-1:]
        left = room - note_tokens - sum(map(self._size, shown))
        # First as many turns as fit in their short form.
        chosen = []
        for place in ranked:
            cost = self._size(short[place]) - self._size(shown[place])
            if cost <= left:
                shown[place] = short[place]
                left -= cost
                chosen.append(place)
        # Then these again, whole where room is left.
        for place in chosen:
            cost = self._size(turns[place]) - self._size(short[place])
            if cost <= left:
                shown[place] = turns[place]
                left -= cost
        return [message for turn in shown for message in turn]

    def _by_relevance(self, turns: Sequence[Sequence[ChatMessage]], query: str) -> list[int]:
        """The places of *turns*, the most relevant first; of equal ones the newest.

        A turn's relevance is the sum of the rarities of the query's terms that it has.
        """
        found = [self._terms(turn) for turn in turns]
        score = [0.0] * len(turns)
        for term in list(dict.fromkeys(content_terms(query) or terms(query)))[:_MAX_QUERY_TERMS]:
            having = sum(term in words for words in found)
            rarity = math.log(1 + (len(turns) - having + 0.5) / (having + 0.5))
            for place, words in enumerate(found):
                if term in words:
                    score[place] += rarity
                elif any(other in words for other in synonyms(term)):
                    score[place] += _SYNONYM_WEIGHT * rarity
        return sorted(range(len(turns)), key=lambda place: (-score[place], -place))

    def _terms(self, turn: Sequence[ChatMessage]) -> frozenset[str]:
        texts = (self._items[item_id].text[:_MAX_READ_CHARS] for message in turn for item_id in message["item_ids"])
        return frozenset(term for text in texts for term in terms(text))

    def _size(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of what is shown of *messages*: no piece that cl100k_base counts goes over the end of a part."""
        return sum(self._count(part) for message in messages for part in self._parts(message))

    def _count(self, part: str) -> int:
        return self._counted.count(part + _BETWEEN_PARTS)

    def _pack(self, kept: Sequence[ContextItem], messages: Sequence[ChatMessage]) -> ContextPack:
        there = {item_id for message in messages for item_id in message["item_ids"]}
        left_out = tuple(item.id for item in kept if item.id not in there)
        note = [_left_out_note(len(left_out))] if left_out else []
        prompt = _BETWEEN_PARTS.join([*note, *(part for message in messages for part in self._parts(message))])
        return ContextPack(
            prompt=prompt,
            messages=tuple({key: value for key, value in m.items() if key != "item_ids"} for m in messages),
            tokens=self._tokens.count(prompt),
            included=tuple(item.id for item in kept if item.id in there),
            left_out=left_out,
            artifacts=tuple(ref for item in kept if item.id in there for ref in self._shown.get(item.id, ())),
        )

    def _parts(self, message: ChatMessage) -> list[str]:
        """A message under its heading, and each of its calls, as the item has it, under one of its own."""
        heading = message["role"]
        if heading == "tool":
            heading = f"tool result {one_line(message['tool_call_id'])}"
        parts = [f"[{heading}]\n{_plain(message['content'])}"] if message["content"] else []
        for call in message.get("tool_calls", ()):
            parts.append(f"[tool call {one_line(call['id'])}]\n{_plain(self._items[call['id']].text)}")
        return parts


def _tool_id(tool_name: str) -> ToolId:
    try:
        parse_tool_id(tool_name)
    except CatalogError:
        return derive_tool_id(tool_name, None, None, None)
    return ToolId(tool_name)


def _left_out_note(count: int) -> str:
    return f"[left out to save room: {count} earlier items]"


def _plain(text: str) -> str:
    return _HEADING.sub(r"\1 [", text)


def _turns(messages: Sequence[ChatMessage]) -> list[list[ChatMessage]]:
    """A turn is a user message and what follows it; before the first user message stands a turn without one."""
    turns: list[list[ChatMessage]] = []
    for message in messages:
        if not turns or message["role"] == "user":
            turns.append([])
        turns[-1].append(message)
    return turns


def _shortened(message: ChatMessage) -> ChatMessage:
    return {**message, "content": shrink(message["content"])} if message["role"] == "tool" else message

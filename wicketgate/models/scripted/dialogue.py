"""What the scripted model does next, decided from the conversation alone (DESIGN §2 "make run").

Browse with the user's words, take the best card, learn its arguments, run it, view what is large, answer.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wicketgate.catalog.words import synonyms, terms
from wicketgate.models.provider import Message
from wicketgate.models.scripted.answers import (
    INTRODUCTION,
    answer_failure,
    answer_from_result,
    answer_from_view,
    answer_missing,
)
from wicketgate.models.scripted.steps import Call, Step, read_conversation, refill
from wicketgate.models.scripted.values import MAX_MESSAGE_CHARS, given_arguments

VIEW_CHARS = 2_000
MAX_RETRIES = 2
# The scores of cards that a session has seen before are frozen (S0 §5.1), so the best card is the one that comes when
# one is asked for. More are asked for only when it cannot be run.
_ONE = 1
_SEVERAL = 6

_GREETINGS = frozenset(
    ["hello", "hi", "hey", "there", "thanks", "thank", "you", "help", "who", "are", "what", "can", "do"]
)

# No tool has an argument of this name, so a strict schema refuses it and tells what the tool takes; it goes out as a
# dry run only, so a lenient one runs nothing.
_PROBE = {"arguments_wanted": True}


@dataclass(frozen=True, slots=True)
class Say:
    text: str


def next_move(messages: Sequence[Message], tool_names: Collection[str]) -> Say | Call:
    """The next call or the answer, from everything since the last user message."""
    question, steps = read_conversation(messages)
    words = {word.strip(".,!?").lower() for word in question.split()}
    if words <= _GREETINGS or not {"tool_browse", "tool_execute"} <= set(tool_names):
        return Say(INTRODUCTION)
    if not steps:
        return _browse(question, _ONE)
    last = steps[-1]
    match last.call.name:
        case "tool_view":
            return Say(answer_from_view(question, steps))
        case "tool_execute":
            return _after_execute(question, steps, tool_names)
        case _ if "cards" not in last.result:
            return Say(answer_failure(last))
        case _:
            return _after_browse(question, steps)


def _browse(question: str, top_k: int) -> Call:
    return Call("tool_browse", {"query": question[:MAX_MESSAGE_CHARS], "top_k": top_k})


def _after_browse(question: str, steps: Sequence[Step]) -> Say | Call:
    if any(step.refused for step in steps):
        return _replacement(question, steps) or Say(answer_missing(question, steps))
    if cards := _cards(question, steps):
        return _first_call(question, cards[0])
    if len(steps) == 1 and steps[0].result["cards"]:
        return _browse(question, _SEVERAL)
    return Say(f"I found no tool for these words. {INTRODUCTION}")


def _first_call(question: str, card: Mapping[str, Any]) -> Call:
    given = given_arguments(question)
    if given:
        return Call("tool_execute", {"tool_id": card["id"], "args": given})
    return Call("tool_execute", {"tool_id": card["id"], "args": dict(_PROBE), "dry_run": True})


def _after_execute(question: str, steps: Sequence[Step], tool_names: Collection[str]) -> Say | Call:
    last = steps[-1]
    if last.refused:
        return _after_refusal(question, steps)
    if last.result.get("status") not in ("ok", "partial"):
        return Say(answer_failure(last))
    if last.call.arguments.get("dry_run"):
        return Call("tool_execute", {"tool_id": last.tool_id, "args": given_arguments(question)})
    if "tool_view" in tool_names and (handle := _larger_than_shown(last.result)):
        return Call("tool_view", {"handle": handle, "selector": {"type": "head", "chars": VIEW_CHARS}})
    return Say(answer_from_result(question, steps))


def _after_refusal(question: str, steps: Sequence[Step]) -> Say | Call:
    last = steps[-1]
    filling = refill(question, last)
    probing = bool(last.call.arguments.get("dry_run"))
    replacing = any(step.refused and step.tool_id != last.tool_id for step in steps)
    if filling.missing or (probing and replacing):
        best = _best_probed(question, steps) if probing else None
        return _replacement(question, steps) or best or Say(answer_missing(question, steps))
    refusals = sum(step.refused and step.tool_id == last.tool_id for step in steps)
    if filling.arguments == last.args or refusals > MAX_RETRIES:
        return Say(answer_failure(last))
    return Call("tool_execute", {"tool_id": last.tool_id, "args": filling.arguments})


def _best_probed(question: str, steps: Sequence[Step]) -> Call | None:
    """Of the tools that can be run, the one that takes most of what the message gives; of equals the better card."""
    fillings = [(step.tool_id, refill(question, step)) for step in steps if step.refused]
    complete = [(tool_id, filling.arguments) for tool_id, filling in fillings if not filling.missing]
    if not complete:
        return None
    tool_id, arguments = max(complete, key=lambda one: len(one[1]))
    return Call("tool_execute", {"tool_id": tool_id, "args": arguments})


def _replacement(question: str, steps: Sequence[Step]) -> Call | None:
    """Try the next tool of the best one's server that has no side effects, if there is one and the best is not meant.

    It is meant when the message has every word of its name. If it only reads, the server's name need not be said.
    """
    cards = _cards(question, steps)
    best = cards[0]
    name, asked = set(terms(str(best["name"]))), set(terms(question))
    if name <= asked or (not best.get("side_effects") and name - _namespace_words(best) <= asked):
        return None
    if sum(step.call.name == "tool_browse" for step in steps) == 1:
        return _browse(question, _SEVERAL)
    tried = {step.tool_id for step in steps}
    for card in cards:
        same_server = card.get("namespace") == best.get("namespace")
        if same_server and card["id"] not in tried and not card.get("side_effects"):
            return _first_call(question, card)
    return None


def _cards(question: str, steps: Sequence[Step]) -> list[Mapping[str, Any]]:
    """The tools that were found, the best first.

    What changes things is left out unless the message has the word for it, or ``cancel_order`` would answer "my orders"
    and ``git_add`` "which files are here".
    """
    asked = set(terms(question))
    asked |= {synonym for term in asked for synonym in synonyms(term)}
    found: dict[str, Mapping[str, Any]] = {}
    for step in steps:
        for card in sorted(step.result.get("cards", ()), key=lambda card: -float(card.get("score") or 0.0)):
            found.setdefault(card["id"], card)
    return [
        card
        for card in found.values()
        if card.get("kind", "tool") != "internal" and (not card.get("side_effects") or _action(card) in asked)
    ]


def _action(card: Mapping[str, Any]) -> str:
    """The first word of the name that is not the namespace."""
    return next((term for term in terms(str(card["name"])) if term not in _namespace_words(card)), "")


def _namespace_words(card: Mapping[str, Any]) -> set[str]:
    return set(terms(str(card.get("namespace", ""))))


def _larger_than_shown(envelope: Mapping[str, Any]) -> str:
    """The handle of the text when the summary does not hold all of it, else empty."""
    texts = [ref for ref in envelope.get("artifacts") or () if str(ref.get("media_type", "")).startswith("text/")]
    shown_bytes = len(str(envelope.get("summary", "")).encode())
    return str(texts[0]["handle"]) if texts and texts[0].get("size_bytes", 0) > shown_bytes else ""

"""The provider ``scripted``: a fixed program that stands in for a model and says so in every answer.

It understands nothing. It browses with the user's words, runs the best tool that the message gives the arguments for,
views a long result and says what came back (OPS-16). It knows the arguments of a few tools beforehand; those of any
other it reads from the refusal of a dry run.
"""

import json
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from wicketgate.catalog.card_lines import CardLine, read_card_lines
from wicketgate.catalog.words import terms
from wicketgate.errors import ProviderError
from wicketgate.models.provider import Finish, Message, ModelEvent, ModelRequest, TextDelta, ToolCall, Usage
from wicketgate.models.scripted.arguments import (
    MAX_MESSAGE_CHARS,
    Filling,
    fill_arguments,
    json_arguments,
    known_arguments,
    said_arguments,
)
from wicketgate.models.scripted.wording import in_words
from wicketgate.results.bulk import read_object
from wicketgate.results.page import read_page

SIGNATURE = "(Scripted demo model, not an LLM"
INTRODUCTION = (
    "I am the scripted demo model: a small fixed program in the place of an LLM. I look for a tool with your words, "
    "fill its arguments from your message, run it and show what came back. In the demo, try: What time is it in "
    "Tokyo? - show the last 3 commits of this repository - list the orders of customer cust_0007."
)
VIEW_CHARS = 4_000
SHOWN_CHARS = 2_000
_MOST_TRIED = 6
# Where a session shows cards that it has seen before the others, the last line of a browse names the best.
_FAILURE = {"error", "message"}
_NOT_RUN = re.compile(r"tool_\w+ timed out after |not run: |loop_guard: |invalid arguments: |approval_")
_TOTAL = re.compile(r"\n\[total: ([\d,]+)(; next: .*)?\]\Z")
_BEST = re.compile(r"Best for this query: (\S+(?:, \S+)*)\.")
# Who asks does not want a change: "show the last commits" commits nothing.
_ASKING = frozenset(["what", "which", "who", "when", "where", "how", "show", "list", "find", "are", "is", "did"])
# Six words to an event of text, as a model would stream.
_GROUP = re.compile(r"\s*(?:\S+\s*){1,6}")
_GREETINGS = frozenset(
    ["hello", "hi", "hey", "there", "thanks", "thank", "you", "help", "who", "are", "what", "can", "do"]
)
# No tool has an argument of this name, so a strict schema refuses it and teaches the tool's arguments. It goes out in
# a dry run only, so that a lenient schema runs nothing.
_PROBE = {"arguments_wanted": True}


class ScriptedModel:
    """Implements Provider. Stateless: the same request always gives the same events.

    Usage counts words, not tokens: there is no tokenizer here to count with.
    """

    async def aclose(self) -> None:
        """Does nothing: there is no connection."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Sequence[ModelEvent], None]:
        """Gives one call, or an answer in groups of words, each in its own batch; then Finish.

        Raises ProviderError on tool messages that no gateway face has written.
        """
        words_read = sum(_words(message) for message in request.messages)
        try:
            move = next_move(request.messages, {tool.name for tool in request.tools})
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise ProviderError("the script does not know such a conversation") from error
        if isinstance(move, Call):
            raw = json.dumps(move.arguments, ensure_ascii=False)
            calls_made = sum(len(message.get("tool_calls") or ()) for message in request.messages)
            yield [ToolCall(f"call_{calls_made + 1}", move.name, move.arguments, raw)]
            yield [Finish("tool_calls", Usage(words_read, len(raw.split())))]
            return
        for group in _GROUP.findall(move):
            yield [TextDelta(group)]
        yield [Finish("stop", Usage(words_read, len(move.split())))]


@dataclass(frozen=True, slots=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Step:
    """A call that was made, and its answer: the JSON object, the lines of a browse under ``cards``, or any other text
    under ``text``."""

    call: Call
    result: Mapping[str, Any]

    @property
    def tool_id(self) -> str:
        return str(self.call.arguments.get("tool_id", ""))

    @property
    def is_refused(self) -> bool:
        return self.result.get("error") == "ARGS_INVALID" and self.call.name == "tool_execute"

    @property
    def is_dry_run(self) -> bool:
        return bool(self.call.arguments.get("dry_run"))

    @property
    def details(self) -> Mapping[str, Any]:
        return self.result.get("details") or {}


def next_move(messages: Sequence[Message], tool_names: Collection[str]) -> Call | str:
    """The next call, or the answer as text, decided from everything since the last user message."""
    question, steps = _read_conversation(messages)
    # Nothing to look for, or nothing to look with.
    words = {word.strip(".,!?").lower() for word in question.split()}
    if words <= _GREETINGS or not {"tool_browse", "tool_execute"} <= set(tool_names):
        return INTRODUCTION
    # Otherwise the last answer decides.
    if not steps:
        return Call("tool_browse", {"query": question[:MAX_MESSAGE_CHARS]})
    last = steps[-1]
    match last.call.name:
        case "tool_view":
            return _answer_from_view(steps)
        case "tool_execute":
            return _after_execute(question, steps, tool_names)
        case _ if "cards" not in last.result:
            return _answer_failure(last)
        case _:
            return _after_browse(question, steps)


def _after_browse(question: str, steps: Sequence[_Step]) -> Call | str:
    cards = _usable_cards(question, steps)
    if not cards:
        return f"I found no tool for these words. {INTRODUCTION}"
    # A tool whose arguments are known, and all there, before one that has to be asked. But what the message names is
    # never replaced.
    if not json_arguments(question) and not set(terms(cards[0].name)) <= set(terms(question)):
        for card in cards[:_MOST_TRIED]:
            filling = known_arguments(question, card.name)
            if filling is not None and not filling.missing and card.namespace == cards[0].namespace:
                return Call("tool_execute", {"tool_id": card.id, "args": filling.arguments})
    return _first_call(question, cards[0], str(steps[0].result.get("takes", "")))


def _first_call(question: str, card: CardLine, takes: str) -> Call:
    """Runs the tool at once with JSON arguments of the message, or with all that it is known to take, or that the last
    line of the browse, *takes*, says; otherwise asks which arguments there are."""
    if given := json_arguments(question):
        return Call("tool_execute", {"tool_id": card.id, "args": given})
    known = known_arguments(question, card.name)
    if known is not None and not known.missing:
        return Call("tool_execute", {"tool_id": card.id, "args": known.arguments})
    if (expected := said_arguments(takes, card.name)) is not None:
        said = fill_arguments(question, expected)
        if not said.missing:
            return Call("tool_execute", {"tool_id": card.id, "args": said.arguments})
    return Call("tool_execute", {"tool_id": card.id, "args": dict(_PROBE), "dry_run": True})


def _after_execute(question: str, steps: Sequence[_Step], tool_names: Collection[str]) -> Call | str:
    last = steps[-1]
    # A first refusal teaches the arguments, but for those that the message gives as they are.
    tries = sum(step.tool_id == last.tool_id for step in steps)
    if last.is_refused and tries == 1 and not json_arguments(question):
        filling = _fill(question, last)
        if filling.missing:
            return _answer_missing(question, last)
        if filling.arguments != last.call.arguments.get("args"):
            return Call("tool_execute", {"tool_id": last.tool_id, "args": filling.arguments})
    if last.result.get("status") not in ("ok", "partial"):
        return _answer_failure(last)
    # A dry run that was not refused: the tool takes any arguments, so it runs without.
    if last.is_dry_run:
        return Call("tool_execute", {"tool_id": last.tool_id, "args": {}})
    if "tool_view" in tool_names and (handle := _longer_text(last.result)):
        return Call("tool_view", {"handle": handle, "selector": {"type": "head", "chars": VIEW_CHARS}})
    return _signed(_shown(last.result), last)


def _usable_cards(question: str, steps: Sequence[_Step]) -> list[CardLine]:
    """Cards best first, those of the best card's server before the others.

    A card with side effects needs its verb in the message, which must not be a question: ``cancel_order`` must not
    answer "my orders".
    """
    result = steps[0].result
    best = {card_id: place for place, card_id in enumerate(result.get("best", ()))}
    cards = sorted(result["cards"], key=lambda card: best.get(card.id, len(best)))
    cards = [card for card in cards if not card.is_internal]
    if not cards:
        return []
    asked, server = set(terms(question)), cards[0].namespace
    is_question = question.split()[0].lower() in _ASKING
    usable = [card for card in cards if not card.side_effects or (not is_question and _verb(card) in asked)]
    return sorted(usable, key=lambda card: card.namespace != server)


def _verb(card: CardLine) -> str:
    """The first word of the name that does not belong to the namespace."""
    namespace = set(terms(card.namespace))
    return next((term for term in terms(card.name) if term not in namespace), "")


def _longer_text(envelope: Mapping[str, Any]) -> str:
    """The handle of the text if the page does not hold all of it; otherwise empty."""
    handle = next(iter(envelope.get("handles") or ()), "")
    return str(handle) if str(handle).startswith("text:") else ""


def _answer_from_view(steps: Sequence[_Step]) -> str:
    """Shows the viewed text; if the view failed, the envelope and the reason."""
    view, ran = steps[-1].result, steps[-2]
    if "content" not in view:
        return _signed(f"{_shown(ran.result)}\n\n{_failure('Viewing the whole result', view)}", ran)
    text = str(view["content"])
    if not view["goes_on"]:
        text = in_words(text)
    if view["goes_on"] or len(text) > SHOWN_CHARS:
        text = (
            f"{text[:SHOWN_CHARS].rstrip()}\n[…]\n\nThis is the beginning of {view['total']} characters; "
            f"the whole is kept under the handle {steps[-1].call.arguments.get('handle')}."
        )
    return _signed(text, ran)


def _answer_failure(step: _Step) -> str:
    task = "Looking for a tool"
    if step.call.name == "tool_execute":
        task = f"Running {step.tool_id} with {_compact(step.call.arguments.get('args'))}"
    return _signed(_failure(task, step.result))


def _answer_missing(question: str, step: _Step) -> str:
    """Asks for the arguments that the message does not give."""
    expected = step.details.get("expected") or {}
    lines = "\n".join(f"- {name}: {expected[name]}" for name in _fill(question, step).missing)
    example = f", for example {_compact(step.details['example'])}" if step.details.get("example") else ""
    return _signed(
        f"I did not run {step.tool_id}: your message does not give\n{lines}\n"
        f"Name it in the message, or give the arguments as JSON{example}."
    )


def _fill(question: str, step: _Step) -> Filling:
    return fill_arguments(question, step.details.get("expected") or {})


def _shown(envelope: Mapping[str, Any]) -> str:
    """The page in words."""
    return in_words(str(envelope.get("summary", ""))).strip()


def _failure(task: str, result: Mapping[str, Any]) -> str:
    reason = result.get("message") or result.get("summary") or result.get("text") or "it gave no reason"
    code = f" ({result['error']})" if "error" in result else ""
    again = " It may work when tried again." if result.get("retryable") is True else ""
    return f"{task} failed{code}: {reason}{again}"


def _signed(text: str, ran: _Step | None = None) -> str:
    source = f": {ran.tool_id} with {_compact(ran.call.arguments.get('args'))}" if ran is not None else ""
    return f"{text.strip()}\n\n{SIGNATURE}{source}.)"


def _read_conversation(messages: Sequence[Message]) -> tuple[str, list[_Step]]:
    """The last user message, and the answered calls after it in order."""
    question = ""
    steps: list[_Step] = []
    answers = {message.get("tool_call_id"): message for message in messages if message.get("role") == "tool"}
    for message in messages:
        if message.get("role") == "user":
            question, steps = str(message.get("content") or "").strip(), []
        for call in message.get("tool_calls") or ():
            if answer := answers.get(call["id"]):
                made = Call(call["function"]["name"], _read_object(call["function"]["arguments"]))
                steps.append(_Step(made, _read_result(made.name, str(answer.get("content") or ""))))
    return question, steps


def _read_object(text: str) -> dict[str, Any]:
    """The JSON object that *text* holds; otherwise ``{"text": text}``."""
    value = read_object(text)
    return {"text": text} if value is None else value


def _read_result(tool: str, text: str) -> dict[str, Any]:
    """The answer of a meta-tool: the fields of a failure or a dry run, otherwise those of the page or of the lines."""
    body = _read_object(text)
    if body.keys() >= _FAILURE or "dry_run" in body or (tool == "tool_browse" and "text" not in body):
        return body
    match tool:
        case "tool_browse":
            best = _BEST.search(text.rpartition("\n")[2])
            lines = {"cards": read_card_lines(text), "best": best[1].split(", ") if best else []}
            return {**lines, "takes": text.rpartition("\n")[2]}
        case "tool_view" if total := _TOTAL.search(text):
            return {"content": text[: total.start()], "total": total[1], "goes_on": total[2] is not None}
        case _:
            page = read_page(text)
            failed = page.failed or _NOT_RUN.match(text) is not None
            return {"status": "error" if failed else "ok", "summary": page.text, "handles": page.handles}


def _words(message: Mapping[str, Any]) -> int:
    calls = message.get("tool_calls") or ()
    texts = [str(message.get("content") or ""), *(str(call["function"]["arguments"]) for call in calls)]
    return sum(len(text.split()) for text in texts)


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

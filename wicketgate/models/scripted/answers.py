"""What the scripted model says: only what came back, and always that it is a script (DESIGN §2 "make run")."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wicketgate.models.scripted.steps import Step, read_object, refill

SIGNATURE = "(Scripted demo model, not an LLM"
INTRODUCTION = (
    "I am the scripted demo model: a small fixed program in the place of an LLM. I look for a tool with your words, "
    "fill its arguments from your message, run it and show what came back. In the demo, try: What time is it in "
    "Tokyo? - show the last 3 commits of this repository - list the orders of customer cust_0007."
)


def answer_from_result(question: str, steps: Sequence[Step]) -> str:
    """From an envelope that holds all there is."""
    return _signed(_shown(steps[-1].result), _source(question, steps, steps[-1]))


def answer_from_view(question: str, steps: Sequence[Step]) -> str:
    """From what ``tool_view`` showed; if it showed nothing, from the envelope, and that is said."""
    view = steps[-1].result
    ran = next((step for step in reversed(steps) if step.call.name == "tool_execute"), steps[-1])
    text = str(view.get("content", ""))
    if "content" not in view:
        text = f"{_shown(ran.result)}\n\n{_failed('Viewing the whole result', view)}"
    elif view.get("next") is not None:
        text = (
            f"{text.rstrip()}\n[…]\n\nThis is the beginning of {view.get('total')} characters; "
            f"the whole is kept under the handle {view.get('handle')}."
        )
    return _signed(text, _source(question, steps, ran))


def answer_failure(step: Step) -> str:
    what = "Looking for a tool"
    if step.call.name == "tool_execute":
        what = f"Running {step.tool_id} with {_compact(step.args)}"
    return _signed(_failed(what, step.result))


def answer_missing(question: str, steps: Sequence[Step]) -> str:
    """What the message lacks for the tool that lacks least; of equals, the one that fitted the words better."""
    step = min((step for step in steps if step.refused), key=lambda step: len(refill(question, step).missing) or 99)
    expected = step.details.get("expected") or {}
    lines = "\n".join(
        f"- {name}: {expected.get(name)}" + (f"; it cannot be {_compact(step.args[name])}" if name in step.args else "")
        for name in refill(question, step).missing
    )
    example = f", for example {_compact(step.details['example'])}" if step.details.get("example") else ""
    return _signed(
        f"I did not run {step.tool_id}: your message does not tell me\n{lines}\n"
        f"Name it in the message, or give the arguments as JSON{example}."
    )


def _shown(envelope: Mapping[str, Any]) -> str:
    """The summary, and the facts unless the summary is the same JSON that they were taken from."""
    summary = str(envelope.get("summary", ""))
    facts = envelope.get("facts") or () if "text" in read_object(summary) else ()
    return "\n".join([summary, *map(str, facts)]).strip()


def _failed(what: str, result: Mapping[str, Any]) -> str:
    said = str(result.get("message") or result.get("summary") or result.get("text") or "it gave no reason")
    code = f" ({result['error']})" if "error" in result else ""
    again = " It may work when tried again." if result.get("retryable") is True else ""
    return f"{what} failed{code}: {said}{again}"


def _source(question: str, steps: Sequence[Step], ran: Step) -> str:
    """Which call the answer is from, and the tool that fitted the words better, if an argument for it is missing."""
    best = next((step for step in steps if step.refused), ran)
    missing = refill(question, best).missing if best.tool_id != ran.tool_id else ()
    passed_over = f"; {best.tool_id} fits better, but I lack {', '.join(missing)}" if missing else ""
    return f": {ran.tool_id} with {_compact(ran.args)}{passed_over}"


def _signed(text: str, source: str = "") -> str:
    return f"{text}\n\n{SIGNATURE}{source}.)"


def _compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))

"""The judgement of ``make chaos`` over what callers were told and what took place. Decides only.

Answers must be right, effects must be those that were told, and the events of a run with a key must reach its client
each once, in order. What a fault may cost is counted, and is no failure: a refusal that says that nothing ran, an error
that says that it may have run, a stream that breaks.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from bench.chaos_story import answer, charges, first_words, last_words

Door = Literal["chat, key", "chat", "/mcp 2026", "/mcp session", "question 2026", "question session"]
DOORS: tuple[Door, ...] = ("chat, key", "chat", "/mcp 2026", "/mcp session", "question 2026", "question session")

Outcome = Literal["ok", "refused", "unheard", "failed", "cut", "unknown", "broken off", "unreached"]
OUTCOMES: Mapping[Outcome, str] = {
    "ok": "answered",
    "refused": "told that nothing ran",
    "unheard": "told that nobody had answered",
    "failed": "told an error",
    "cut": "connection or stream broken",
    "unknown": "told `fate unknown`",
    "broken off": "journal, then one `error`",
    "unreached": "no connection",
}
"""The ends that a call may have, and how it is shown."""

Fault = Literal["events lost", "effects doubled", "wrong answers", "false 404", "keyed runs begun again", "no answer"]
FAULTS: tuple[Fault, ...] = (
    "events lost",
    "effects doubled",
    "wrong answers",
    "false 404",
    "keyed runs begun again",
    "no answer",
)
"""Things that must not happen, whatever dies."""

Breach = Callable[[Fault, str], None]
"""Notes what must not happen, in a line."""

NOTHING_RAN: frozenset[Outcome] = frozenset({"refused", "unheard", "unreached"})


@dataclass(frozen=True, slots=True)
class Told:
    """The end of one call or chat: *at_s* since the beginning of the load; *effect*: it has one if it runs."""

    door: Door
    number: int
    outcome: Outcome
    at_s: float
    took_s: float
    effect: bool
    why: str = ""


@dataclass
class Ledger:
    """Grows while callers run. *breaches* are (fault, line) in the order in which they were seen; *broke_off* counts
    connections of chats with a key that a fault cut, after which the client came back."""

    told: list[Told] = field(default_factory=list)
    breaches: list[tuple[Fault, str]] = field(default_factory=list)
    came_back: int = 0
    silence_s: float = 0.0
    """The longest time in which a chat with a key showed nothing new to its client."""
    flushes: list[list[float]] = field(default_factory=list)
    """When each loss of all keys of Redis began and, once it has, ended, in seconds. Calls that run in that time
    have no guarantees."""
    excused: list[str] = field(default_factory=list)
    """The breaches that are excused because their calls were under way when the store lost its data."""

    def lost(self, began_s: float, ended_s: float) -> bool:
        """Returns whether Redis lost all keys between the two."""
        return any(flush[0] <= ended_s and (len(flush) == 1 or began_s <= flush[1]) for flush in self.flushes)


@dataclass(frozen=True, slots=True)
class Verdict:
    """*counts* of every fault. *lines* name them."""

    counts: Mapping[Fault, int]
    lines: Sequence[str]

    @property
    def passed(self) -> bool:
        return not any(self.counts.values())


def judge(ledger: Ledger, effects: Sequence[int]) -> Verdict:
    """*effects* are the numbers of all that took place, in order."""
    breaches = list(ledger.breaches)
    made = Counter(effects)
    excused = {one.number for one in ledger.told if ledger.lost(one.at_s - one.took_s, one.at_s)}
    for number, count in made.items():
        if count > 1 and number not in excused:
            breaches.append(("effects doubled", f"{number} took place {count} times"))
    for one in ledger.told:
        if not one.effect:
            continue
        if one.outcome == "ok" and not made[one.number]:
            breaches.append(("wrong answers", f"{one.door} {one.number}: told as done, and never took place"))
        if one.outcome in NOTHING_RAN and made[one.number]:
            breaches.append(("wrong answers", f"{one.door} {one.number}: told as not run ({one.why}), and took place"))
    counts = Counter(fault for fault, _ in breaches)
    return Verdict({fault: counts[fault] for fault in FAULTS}, [f"{fault}: {line}" for fault, line in breaches])


def longest_gap_s(answered_at: Iterable[float], began_s: float, ended_s: float) -> float:
    """The longest time between two answers in a row, the beginning and the end taken for answers."""
    moments = [began_s, *sorted(at for at in answered_at if began_s <= at <= ended_s), ended_s]
    return max(after - before for before, after in itertools.pairwise(moments))


@dataclass
class Reading:
    """The events of one run with a key, as its client saw them over all its connections."""

    number: int
    run: str = ""
    last: int = 0
    events: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    breaches: list[tuple[Fault, str]] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        return bool(self.events) and self.events[-1][0] in ("done", "error")

    @property
    def last_event_id(self) -> str:
        return f"{self.run}-{self.last}" if self.run else ""

    def add(self, event_id: str, name: str, data: Mapping[str, object], again: bool) -> None:
        """*again*: this connection began at the beginning, so that events come that were read before."""
        run, _, digits = event_id.rpartition("-")
        position = int(digits) if digits.isdigit() else 0
        if not position:
            # Without an id it is no event of the run: it ends this stream, and the client comes back for the rest.
            return
        if self.run and run != self.run:
            self._breach("keyed runs begun again", f"{self.run} became {run} at event {self.last + 1}")
            self.run, self.last, self.events = run, 0, []
        self.run = run
        if position <= self.last:
            if not again:
                self._breach("events lost", f"event {position} came twice")
            elif self.events[position - 1] != (name, data):
                self._breach("events lost", f"event {position} reads otherwise than before")
            return
        if position != self.last + 1:
            self._breach("events lost", f"event {position} after {self.last}")
        if self.ended:
            self._breach("events lost", f"{name} behind the end")
        self.last = position
        self.events.append((name, data))

    def outcome(self) -> tuple[Outcome, str]:
        """Of a run that has ended, and why. Adds breaches for what is wrong in it."""
        return outcome_of_chat(self.number, self.events, self._breach)

    def _breach(self, fault: Fault, line: str) -> None:
        self.breaches.append((fault, f"chat with a key {self.number}: {line}"))


def outcome_of_chat(
    number: int, events: Sequence[tuple[str, Mapping[str, object]]], breach: Breach
) -> tuple[Outcome, str]:
    """The outcome of a stream that has an end. *breach* is given what is wrong in it."""
    text = "".join(str(data["content"]) for name, data in events if name == "text-delta")
    results = [data for name, data in events if name == "tool-result"]
    if [data.get("id") for data in results] not in ([], [f"c{number}"]):
        breach("wrong answers", f"results of other calls: {results!r:.300}")
    result = results[0] if results else {}
    said = str(result.get("output") or result.get("error") or "")
    right = answer("charge" if charges(number) else "look", number)
    well = "output" in result and right in said and '"error"' not in said
    name, end = events[-1]
    # The text is what the model said, whole behind a done, and else a beginning of it.
    whole = "".join([*first_words(number), *(last_words(number, said) if results else ())])
    stopped = name == "done" and end.get("finish_reason") == "stop"
    if text != whole if stopped else not whole.startswith(text):
        breach("wrong answers", f"text {text!r:.400} for {whole!r:.400}")
    if stopped and well:
        return "ok", ""
    if "fate unknown" in said:
        return "unknown", said[:200]
    if not stopped:
        return "broken off", f"{name} {end!r:.200}, result {said!r:.200}"
    if not results:
        breach("wrong answers", f"done without a result: {events!r:.400}")
    return _outcome_of_error(said), said[:200]


_NEVER_SENT = ("RATE_LIMITED", "UPSTREAM_UNAVAILABLE", "NOT_ADMITTED", "HYDRATE_FAILED")


def _outcome_of_error(text: str) -> Outcome:
    return "refused" if any(code in text for code in _NEVER_SENT) else "failed"


def outcome_of_call(tool: str, number: int, reply: Mapping[str, object], breach: Breach) -> tuple[Outcome, str]:
    """The outcome of a JSON-RPC reply to ``tool_execute``."""
    shown = f"{reply!r:.400}"
    result = reply.get("result")
    if isinstance(result, Mapping):
        body = result.get("structuredContent")
        if isinstance(body, Mapping) and body.get("status") in ("ok", "partial"):
            if answer(tool, number) != str(body.get("summary")).strip():
                breach("wrong answers", f"{tool} {number}: {shown}")
                return "failed", shown
            return "ok", ""
    if "fate unknown" in shown or "Whether it took effect is not known" in shown:
        return "unknown", shown
    return _outcome_of_error(shown), shown

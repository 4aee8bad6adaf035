"""Admits declared tools: those that are as they were accepted, and not suspicious.

A pin keeps a definition as it was accepted. The definition that an upstream declares is compared with it before
anything is shortened, renamed or described again. A definition is suspicious when it seems to speak to the model behind
the user's back: a small set of plain signs is searched for in each of its texts, in linear time. The signs prove
nothing; a person decides, or the operator keeps such tools out.
"""

import re
import unicodedata
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wicketgate.catalog.definition_change import DefinitionChange, compare_definitions, declared, definition_digest
from wicketgate.catalog.shown_words import HIDDEN, safe_sources, visible, words_of

HeldFor = Literal["changed", "new", "suspicious"]


@dataclass(frozen=True, slots=True)
class Pin:
    """A definition that was accepted. *trusted*: by a person who was shown its suspicious signs."""

    sha256: str
    definition: Mapping[str, Any]
    trusted: bool = False


Pins = Mapping[str, Mapping[str, Pin]]
"""By source and by the item's own name there. The tools of ``rec`` are the source ``rec``; its other offers are
``rec/prompts``, ``rec/resources``, ``rec/templates``, ``rec/skills`` and ``rec/instructions``, which no upstream can be
called."""

_ADDRESSES = {"resources": "uri", "templates": "uriTemplate", "skills": "uri"}


def address_of(source: str) -> str:
    """The field by which the items of *source* are known."""
    return _ADDRESSES.get(source.partition("/")[2], "name")


@dataclass(frozen=True, slots=True)
class PinPolicy:
    """Without *pins* any definition is as good as another, and only suspicious ones are looked for."""

    pins: Pins | None = None
    hold_new: bool = False
    hold_suspicious: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A tool that does not exist for callers until a person accepts it."""

    reason: HeldFor
    change: DefinitionChange | None = None
    signs: tuple[str, ...] = ()

    @property
    def explanation(self) -> str:
        if self.change is not None:
            return f"its definition changed since it was accepted; {_IMPACTS[self.change.impact]}"
        if self.reason == "new":
            return "no person has accepted it yet"
        return "; ".join(self.signs)


@dataclass(frozen=True, slots=True)
class Screened:
    """*kept* is what may become tools, in order, without hidden characters in its words, and with unreadable
    definitions: the catalog says what is wrong with them. *held* and *flagged* (the signs) go by the tool's own name;
    *gone* are pinned tools that are not there."""

    kept: tuple[Any, ...] = ()
    held: Mapping[str, Held] = field(default_factory=dict)
    flagged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


_IMPACTS = {
    "breaking": "this can break callers",
    "compatible": "callers that work will go on working",
}


def screen(server: str, listing: Sequence[Any], policy: PinPolicy, former: Screened | None = None) -> Screened:
    """Sorts the tools of *listing* by *policy*. Linear: 10,000 tools take about a quarter of a second.

    *former* is the outcome of an earlier listing of *server* under the same policy: an object that was kept without
    signs is kept again unread (CARD-40). The first definition of a name decides: a twin that may not be kept is
    replaced by the first, which the catalog reports as a twin (CARD-36).
    """
    pinned = {} if policy.pins is None else policy.pins.get(server, {})
    kept: list[Any] = []
    held: dict[str, Held] = {}
    flagged: dict[str, tuple[str, ...]] = {}
    address = address_of(server)
    plain = _kept_without_signs(former, address) if former is not None else frozenset[int]()
    first: dict[str | None, Any] = {}
    for definition in listing:
        name = _name(definition, address)
        if is_first := name is None or name not in first:
            first[name] = definition
        if not is_first and name in held:
            continue
        if name is None or id(definition) in plain:
            kept.append(definition)
            continue
        # Compare with the pin, then look for suspicious signs that no person has accepted.
        verdict = _verdict(definition, pinned.get(name), policy)
        trusted = verdict is None and name in pinned and pinned[name].trusted
        signs = () if trusted else suspicious_signs(definition)
        if signs and (is_first or verdict is None):
            flagged[name] = signs
        if verdict is None and signs and policy.hold_suspicious:
            verdict = Held("suspicious", signs=signs)
        if verdict is None:
            # Hidden characters are a sign, so only a definition with signs, or a trusted one, may have some.
            # The entry of a skill is no plain object, and its words are judged where it is read.
            plain_words = not (signs or trusted) or type(definition) is not dict
            kept.append(safe_sources(definition if plain_words else visible(definition, words_of(address))))
        elif not is_first:
            kept.append(first[name])
        else:
            held[name] = verdict
    gone = tuple(sorted(pinned.keys() - {_name(definition, address) for definition in listing})) if pinned else ()
    return Screened(tuple(kept), held, flagged, gone)


def _name(definition: object, address: str) -> str | None:
    name = definition.get(address) if type(definition) is dict or isinstance(definition, Mapping) else None
    return name if type(name) is str else None


def _kept_without_signs(former: Screened, address: str) -> frozenset[int]:
    """The identities of the definitions that *former* keeps, which are alive as long as it is. Where several tools have
    one name, a sign of one speaks against all."""
    told = former.held.keys() | former.flagged.keys()
    kept = [definition for definition in former.kept if _name(definition, address) not in told] if told else former.kept
    return frozenset(map(id, kept))


def pin(definition: Mapping[str, Any], *, trusted: bool = False) -> Pin:
    """Raises ValueError for what is not JSON."""
    return Pin(definition_digest(definition), declared(definition), trusted)


def _verdict(definition: Mapping[str, Any], known: Pin | None, policy: PinPolicy) -> Held | None:
    if policy.pins is None:
        return None
    if known is None:
        return Held("new") if policy.hold_new else None
    try:
        if definition_digest(definition) == known.sha256:
            return None
    except ValueError:
        return None  # the catalog leaves it out, with its reason
    return Held("changed", compare_definitions(known.definition, definition))


Declared = Mapping[str, Sequence[Any]]
"""Definitions by upstream, as it gave them; only of upstreams that did."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One tool that differs. *held* is set for one that is there. ``suspicious``: as it was pinned, but never accepted
    by name, which would mean that a person has seen the signs."""

    server: str
    name: str
    kind: Literal["changed", "new", "gone", "suspicious"]
    held: Held | None = None
    signs: tuple[str, ...] = ()

    @property
    def tool(self) -> str:
        return f"{self.server}:{self.name}"


def differences(pins: Pins, declared: Declared) -> tuple[Difference, ...]:
    """Returns the tools that differ, in the order of their names. Only upstreams in *declared* are compared."""
    found: list[Difference] = []
    for server, listing in declared.items():
        screened = screen(server, listing, PinPolicy(pins, hold_new=True))
        for name, held in screened.held.items():
            kind: Literal["changed", "new"] = "changed" if held.reason == "changed" else "new"
            found.append(Difference(server, name, kind, held, screened.flagged.get(name, ())))
        for name, signs in screened.flagged.items():
            if name not in screened.held:
                found.append(Difference(server, name, "suspicious", signs=signs))
        found += [Difference(server, name, "gone") for name in screened.gone]
    return tuple(sorted(found, key=lambda difference: (difference.tool, difference.kind)))


def accept(
    pins: Pins, declared: Declared, chosen: Sequence[Difference], *, trusted: Callable[[Difference], bool]
) -> dict[str, dict[str, Pin]]:
    """Returns *pins* with the *chosen* definitions as they are now. *trusted*: a person has seen the signs."""
    accepted = {server: dict(tools) for server, tools in pins.items()}
    for difference in chosen:
        tools = accepted.setdefault(difference.server, {})
        if difference.kind == "gone":
            tools.pop(difference.name, None)
            continue
        definition = _definition(declared[difference.server], address_of(difference.server), difference.name)
        tools[difference.name] = pin(definition, trusted=bool(difference.signs) and trusted(difference))
    return {server: tools for server, tools in accepted.items() if tools}


def pin_all(declared: Declared) -> dict[str, dict[str, Pin]]:
    return accept({}, declared, differences({}, declared), trusted=lambda difference: False)


def _definition(listing: Sequence[Any], address: str, name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        definition for definition in listing if isinstance(definition, Mapping) and definition.get(address) == name
    )
    return found


MAX_SIGNS = 5

_HIDDEN = re.compile(HIDDEN)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_PHRASES = (
    *("do not tell the user", "don't tell the user", "do not inform the user", "don't inform the user"),
    *("do not mention this to the user", "don't mention this to the user", "without telling the user"),
    *("without informing the user", "without the user knowing", "hide this from the user"),
    *("keep this from the user", "not visible to the user", "<important>", "<system>", "</system>"),
    *("<|im_start|>", "<|system|>", "[system]", "your system prompt", "the system prompt"),
    *("reveal your instructions", "new instructions:", "you are now in", "~/.ssh", "id_rsa", "id_ed25519"),
    *("~/.aws", "~/.cursor", "/etc/passwd", "/etc/shadow", "mcp.json", "claude_desktop_config"),
)
# Only looked for where its first word is. Each part is bounded, so it is linear.
_OVERRIDE = re.compile(
    r"\b(?:ignore|disregard|forget|override)(?: (?:all|any|the|your|my|of|these|those)){0,4}"
    r" (?:previous|prior|earlier|above|preceding|other|existing)(?: \w{1,20}){0,2}"
    r" (?:instructions?|prompts?|rules?|directions?|guidelines?|messages?|tools?)\b"
)
_OVERRIDING = ("ignore", "disregard", "forget", "override")
_ROLES = ("SYSTEM", "ASSISTANT", "DEVELOPER")
# A forged role; only in capitals, because ordinary texts speak of systems.
_ROLE = re.compile(
    r"(?:^|[\s.!?>|*#\"'\[(])(?:SYSTEM|ASSISTANT|DEVELOPER)(?: (?:PROMPT|MESSAGE|NOTE|OVERRIDE))? ?[:\]]"
)
# An order to call something else, in a text that wants the conversation as well.
_CALL_FIRST = re.compile(r"\b(?:first|always|must)(?: \w{1,20}){0,2} (?:call|invoke|run|use)\b")
_CONVERSATION = re.compile(
    r"\b(?:with|pass|passing|send|sending|include|including|forward|attach|copy)(?: \w{1,20}){0,4}"
    r" (?:conversation|chat history|message history|earlier messages|previous messages)\b"
)
_TALK = ("conversation", " history", " messages")
_LEET = str.maketrans("013457@$", "oieastas")

_MAX_VALUES = 100_000
_BETWEEN = " || "  # between two texts, so that no sign is found across them


def suspicious_signs(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the signs that a person should look at, in words; at most five, none for an ordinary tool."""
    texts, whole = _texts(definition)
    text = _BETWEEN.join(texts)
    found = [] if whole else ["too large to be read whole"]
    # Most texts are plain: what is searched for is looked for only where a part of it is.
    plainly_ascii = text.isascii() and text.isprintable()
    hidden = None if plainly_ascii else _CONTROL.search(text) if text.isascii() else _HIDDEN.search(text)
    if hidden is not None:
        characters = sorted(set("".join((_CONTROL if text.isascii() else _HIDDEN).findall(text))))
        found.append("hidden characters: " + ", ".join(f"U+{ord(char):04X}" for char in characters[:MAX_SIGNS]))
        text = _HIDDEN.sub("", text)
    plain = " ".join(text.lower().replace("\u2019", "'").split())
    # Letters of another shape (full width, bold) are read like the plain ones.
    folded = plain if text.isascii() else unicodedata.normalize("NFKC", plain).lower()
    found += [f"words to the model: {phrase!r}" for phrase in _PHRASES if phrase in folded]
    for spelling in dict.fromkeys((folded, plain.translate(_LEET))):
        if any(word in spelling for word in _OVERRIDING) and (override := _OVERRIDE.search(spelling)):
            found.append(f"words to the model: {override.group()[:80]!r}")
            break
    if any(name in text for name in _ROLES) and (role := _ROLE.search(text)):
        found.append(f"words to the model: {role.group().strip()!r}")
    if any(word in plain for word in _TALK) and (wanted := _CONVERSATION.search(plain)) and _CALL_FIRST.search(plain):
        found.append(f"words to the model: {wanted.group()[:80]!r}")
    return tuple(found[:MAX_SIGNS])


def _texts(definition: Mapping[str, Any]) -> tuple[list[str], bool]:
    """Returns every string, names of arguments included, and true if they are all; not ``_meta``, which no model is
    shown. What stands outermost comes first, so that no mass of values hides the description."""
    texts: list[str] = []
    waiting: deque[object] = deque(value for key, value in definition.items() if key != "_meta")
    for _ in range(_MAX_VALUES):
        if not waiting:
            return texts, True
        value = waiting.popleft()
        if isinstance(value, str):
            texts.append(value)
        elif isinstance(value, Mapping):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value
    return texts, not waiting

"""Which declared tools are let in: those that are as they were accepted, and not suspicious (W-PINS).

What an upstream declared is compared, before anything is shortened, renamed or described anew.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wicketgate.catalog.declared import declared, definition_digest
from wicketgate.catalog.definition_change import DefinitionChange, compare_definitions
from wicketgate.catalog.suspicion import suspicious_signs

HeldFor = Literal["changed", "new", "suspicious"]


@dataclass(frozen=True, slots=True)
class Pin:
    """A definition that was accepted. *trusted*: by somebody who was shown its suspicious signs."""

    sha256: str
    definition: Mapping[str, Any]
    trusted: bool = False


Pins = Mapping[str, Mapping[str, Pin]]
"""By upstream and by the tool's own name there."""


@dataclass(frozen=True, slots=True)
class PinPolicy:
    """Without *pins* any definition is as good as another, and only suspicious ones are looked for."""

    pins: Pins | None = None
    hold_new: bool = False
    hold_suspicious: bool = False


@dataclass(frozen=True, slots=True)
class Held:
    """A tool that does not exist for callers until somebody accepts it."""

    reason: HeldFor
    change: DefinitionChange | None = None
    signs: tuple[str, ...] = ()

    @property
    def told(self) -> str:
        if self.change is not None:
            what = _IMPACTS[self.change.impact]
            reasons = f": {'; '.join(self.change.reasons)}" if self.change.reasons else ""
            return f"its definition changed since it was accepted; {what}{reasons}"
        if self.reason == "new":
            return "nobody has accepted it yet"
        return "; ".join(self.signs)


@dataclass(frozen=True, slots=True)
class Screened:
    """*kept* is what may become tools, in order, unreadable definitions included: the catalog says what is wrong with
    them. *held* and *flagged* (the signs) go by the tool's own name; *gone* are pinned tools that are not there."""

    kept: tuple[Any, ...] = ()
    held: Mapping[str, Held] = field(default_factory=dict)
    flagged: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()


_IMPACTS = {
    "breaking": "this can break callers",
    "compatible": "callers that work will go on working",
    "words": "only words differ",
}


def screen(server: str, listing: Sequence[Any], policy: PinPolicy) -> Screened:
    """Pure, and linear in the listing: 10,000 tools take about a quarter of a second."""
    pinned = {} if policy.pins is None else policy.pins.get(server, {})
    kept: list[Any] = []
    held: dict[str, Held] = {}
    flagged: dict[str, tuple[str, ...]] = {}
    seen: set[str] = set()
    for definition in listing:
        name = definition.get("name") if isinstance(definition, Mapping) else None
        if not isinstance(name, str):
            kept.append(definition)
            continue
        seen.add(name)
        verdict = _verdict(definition, pinned.get(name), policy)
        trusted = verdict is None and name in pinned and pinned[name].trusted
        signs = () if trusted else suspicious_signs(definition)
        if signs:
            flagged[name] = signs
        if verdict is None and signs and policy.hold_suspicious:
            verdict = Held("suspicious", signs=signs)
        if verdict is None:
            kept.append(definition)
        else:
            held[name] = verdict
    gone = tuple(sorted(pinned.keys() - seen))
    return Screened(tuple(kept), held, flagged, gone)


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

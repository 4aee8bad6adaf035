"""How the tools of today differ from the accepted ones, and what accepting does (W-PINS)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wicketgate.catalog.pins import Held, Pin, PinPolicy, Pins, pin, screen

Declared = Mapping[str, Sequence[Any]]
"""Definitions by upstream, as it gave them; only of upstreams that did."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One tool that differs. *held* tells of one that is there. ``suspicious``: as it was pinned, but never accepted by
    name, which is what says that somebody has seen the signs."""

    server: str
    name: str
    kind: Literal["changed", "new", "gone", "suspicious"]
    held: Held | None = None
    signs: tuple[str, ...] = ()

    @property
    def tool(self) -> str:
        return f"{self.server}:{self.name}"


def differences(pins: Pins, declared: Declared) -> tuple[Difference, ...]:
    """In the order of their names. Upstreams that gave nothing are not looked at."""
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
    """*pins* with what was *chosen* as it is now. *trusted* says whose suspicious signs somebody has seen."""
    accepted = {server: dict(tools) for server, tools in pins.items()}
    for difference in chosen:
        tools = accepted.setdefault(difference.server, {})
        if difference.kind == "gone":
            tools.pop(difference.name, None)
            continue
        definition = _definition(declared[difference.server], difference.name)
        tools[difference.name] = pin(definition, trusted=bool(difference.signs) and trusted(difference))
    return {server: tools for server, tools in accepted.items() if tools}


def pin_all(declared: Declared) -> dict[str, dict[str, Pin]]:
    return accept({}, declared, differences({}, declared), trusted=lambda difference: False)


def _definition(listing: Sequence[Any], name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = next(
        definition for definition in listing if isinstance(definition, Mapping) and definition.get("name") == name
    )
    return found

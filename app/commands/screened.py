"""Tools that were held back, are suspicious or are gone, as lines for a terminal (W-PINS)."""

from collections.abc import Iterator, Mapping, Sequence

from app.commands.shown import shown
from wicketgate.catalog.pins import Difference, Screened


def quarantine_lines(differences: Sequence[Difference]) -> Iterator[str]:
    """What ``wicketgate lock`` tells: ``~`` changed, ``+`` new, ``-`` gone, ``!`` suspicious."""
    return map(shown, _difference_lines(differences))


def screened_lines(screened: Mapping[str, Screened]) -> Iterator[str]:
    """What ``wicketgate check`` tells."""
    return map(shown, _screened_lines(screened))


def _difference_lines(differences: Sequence[Difference]) -> Iterator[str]:
    for difference in differences:
        match difference.kind:
            case "gone":
                yield f"- {difference.tool}: pinned, but not there any more"
            case "suspicious":
                yield f"! {difference.tool}: {'; '.join(difference.signs)}"
            case kind:
                told = difference.held.told if difference.held else ""
                yield f"{'~' if kind == 'changed' else '+'} {difference.tool}: {told}"
                if difference.held and difference.held.change:
                    yield from (f"    {line}" for line in difference.held.change.lines)
                if difference.signs:
                    yield f"    ! {'; '.join(difference.signs)}"


def _screened_lines(screened: Mapping[str, Screened]) -> Iterator[str]:
    for server, each in screened.items():
        for name, held in each.held.items():
            yield f"quarantined: {server}:{name}: {held.told}"
            if held.change:
                yield from (f"    {line}" for line in held.change.lines)
        for name, signs in each.flagged.items():
            if name not in each.held:
                yield f"suspicious: {server}:{name}: {'; '.join(signs)}"
        for name in each.gone:
            yield f"gone: {server}:{name}: pinned, but not there any more"

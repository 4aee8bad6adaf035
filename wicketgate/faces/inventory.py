"""What stands behind the gate now, in one short line for a model that has not browsed yet (W-FACES)."""

from collections import Counter
from collections.abc import Callable, Iterable

from wicketgate.catalog.selectable import SelectableItem


def inventory(items: Iterable[SelectableItem], fits: Callable[[str], bool]) -> str:
    """Namespaces with the number of their tools, the largest first, as many as *fits* lets in; the same line for the
    same tools. Empty when not even the sums fit."""
    counts = Counter(item.namespace for item in items)
    if not counts:
        return "No tools are here now."
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    for shown in range(len(ranked), 0, -1):
        rest = ranked[shown:]
        names = ", ".join(f"{name} {count}" for name, count in ranked[:shown])
        more = f" and {sum(count for _, count in rest)} in {len(rest)} more" if rest else ""
        line = f"Tools here now: {names}{more}."
        if fits(line):
            return line
    line = f"Tools here now: {counts.total()} in {len(counts)} namespaces."
    return line if fits(line) else ""

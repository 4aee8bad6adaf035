"""Definitions that are as they were before, found without reading them (CARD-39).

An upstream lists all its tools again when one of them changed. Each definition that is as it was gives way to the
object of the former listing, and whatever was found out about that object holds for it.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

T = TypeVar("T")


def with_former(listing: Sequence[T], former: Sequence[T]) -> Sequence[T]:
    """*listing* with the object of *former* for each definition that is as it was; *former* itself for an equal one.

    A definition that moved in the list is found by its name. Returns to the interpreter after each definition, so it
    can run beside an event loop.
    """
    equal = [_equal(now, then) for now, then in zip(listing, former, strict=False)]
    if len(listing) == len(former) and all(equal):
        return former
    by_name: dict[str, T] | None = None
    taken: list[T] = []
    for place, now in enumerate(listing):
        then = former[place] if place < len(equal) else None
        if then is None or not equal[place]:
            name = _name(now)
            if then is None or name != _name(then):
                if by_name is None:
                    by_name = {known: one for one in former if (known := _name(one)) is not None}
                then = by_name.get(name) if name is not None else None
            if then is None or not _equal(now, then):
                taken.append(now)
                continue
        taken.append(then if _exactly(now, then) else now)
    return taken


def _name(definition: object) -> str | None:
    name = definition.get("name") if isinstance(definition, Mapping) else None
    return name if isinstance(name, str) else None


def _equal(now: object, then: object) -> bool:
    try:
        return now is then or bool(now == then)
    except RecursionError:
        return False


_as_json = msgspec.json.Encoder().encode


def _exactly(now: object, then: object) -> bool:
    """Tells apart what Python calls equal: 1, 1.0 and true mean different things in JSON."""
    try:
        return now is then or _as_json(now) == _as_json(then)
    except (TypeError, ValueError, OverflowError, RecursionError):
        return False  # what cannot be compared so is read anew

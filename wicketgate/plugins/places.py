"""Where texts are in arguments and results, and how a copy with other texts is made (S2; gatekit G92).

Everything is read, names of fields and long numbers too, but for bytes that are told as text (pictures, sound, blobs)
and the ``_meta`` of a result and of its blocks, which is between server and client.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

_LONG_NUMBER, _TOO_LONG_NUMBER = 10**12, 10**19
"""A number of thirteen to nineteen digits may be that of a card."""

Role = Literal["any", "result", "blocks", "block", "messages", "message"]
"""What a value is of the shapes of MCP: of ``tools/call``, ``resources/read`` and ``prompts/get`` alike."""

_ROLES: Mapping[tuple[Role, str], Role] = {
    ("result", "content"): "blocks",
    ("result", "contents"): "blocks",
    ("result", "messages"): "messages",
    ("message", "content"): "block",
    ("block", "resource"): "block",
}
_ELEMENTS: Mapping[Role, Role] = {"blocks": "block", "messages": "message"}


def every_text(value: object, role: Role = "any") -> Iterator[str]:
    """Every text, in no particular order; without recursion, for arguments can be nested as deep as JSON."""
    waiting: list[object] = []
    for one in _ordinary(value, role):
        if isinstance(one, str):
            yield one
        else:
            waiting.append(one)
    # Nearly everything is here, so it is kept plain: dicts are told by their type first.
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif type(one) is dict or isinstance(one, Mapping):
            yield from (key for key in one if isinstance(key, str))
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
        elif isinstance(one, int) and _LONG_NUMBER <= one < _TOO_LONG_NUMBER:
            yield str(one)


def with_others(value: Any, replaced: Mapping[str, str], role: Role = "any") -> Any:
    """A copy with other texts; *value* itself stays as it was."""
    root: list[Any] = [value]
    waiting: list[tuple[Any, Any, Role]] = [(root, 0, role)]
    while waiting:
        holder, place, role = waiting.pop()
        one = holder[place]
        if isinstance(one, str):
            holder[place] = replaced.get(one, one)
        elif isinstance(one, Mapping):
            holder[place] = copy = _named(one, replaced) if role == "any" else dict(one)
            keys: Sequence[Any] = tuple(copy) if role == "any" else _read(one, role)
            waiting.extend((copy, key, _ROLES.get((role, key), "any")) for key in keys)
        elif isinstance(one, list | tuple):
            holder[place] = items = list(one)
            inside = _ELEMENTS.get(role, "any")
            waiting.extend((items, index, inside) for index in range(len(items)))
        elif isinstance(one, int) and _LONG_NUMBER <= one < _TOO_LONG_NUMBER:
            holder[place] = replaced.get(str(one), one)
    return root[0]


def _ordinary(value: object, role: Role) -> Iterator[object]:
    """What is found in a value of an MCP shape that has no such shape itself."""
    waiting: list[tuple[object, Role]] = [(value, role)]
    while waiting:
        one, role = waiting.pop()
        if role == "any":
            yield one
        elif isinstance(one, Mapping):
            waiting.extend((one[key], _ROLES.get((role, key), "any")) for key in _read(one, role))
        elif isinstance(one, list | tuple):
            inside = _ELEMENTS.get(role, "any")
            waiting.extend((inner, inside) for inner in one)
        else:
            yield one


def _read(one: Mapping[str, Any], role: Role) -> Sequence[str]:
    """The fields of an MCP shape that are looked into."""
    unread = {"_meta"} if role in ("result", "block") else set()
    if role == "block":
        unread |= {"blob"} if one.get("type") not in ("image", "audio") else {"data"}
    return [key for key, inner in one.items() if key not in unread or not (key == "_meta" or isinstance(inner, str))]


def _named(one: Mapping[Any, Any], replaced: Mapping[str, str]) -> dict[Any, Any]:
    """A copy with other names of fields; those that would meet are numbered, so that nothing is lost."""
    if not any(key in replaced for key in one):
        return dict(one)
    copy: dict[Any, Any] = {}
    met: dict[str, int] = {}
    for key, inner in one.items():
        name = replaced.get(key, key) if isinstance(key, str) else key
        if name in copy:
            met[name] = met.get(name, 1) + 1
            name = f"{name} ({met[name]})"
        copy[name] = inner
    return copy

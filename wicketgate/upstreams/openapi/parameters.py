"""Writes one argument into a path, a query, a header or a cookie (OpenAPI "Style Values", RFC 6570).

An argument always stays one value: every character that could end it is percent-encoded.
"""

import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, unquote

Place = Literal["path", "query", "header", "cookie"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"]

STYLES: Mapping[Place, tuple[Style, ...]] = {
    "path": ("simple", "label", "matrix"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
"""The default first."""

_DELIMITERS: Mapping[Style, str] = {"form": ",", "spaceDelimited": "%20", "pipeDelimited": "%7C"}
# Reserved characters that neither begin another parameter or the fragment, nor are read as a space.
_RESERVED_KEPT = ":/?@!$'()*,[]"
_MAX_DEEP = 8
_MAX_DECODINGS = 5


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operation. *argument* is its name in the tool. *as_json*: it is declared by a media type
    instead of a style. *others* are the names of all other parameters in its place, credentials among them."""

    argument: str
    name: str
    place: Place
    style: Style
    explode: bool
    allow_reserved: bool = False
    as_json: bool = False
    others: frozenset[str] = frozenset()


class NameTaken(ValueError):
    """A key of an exploded object would be sent as a parameter that exists on its own (UP-59)."""

    def __init__(self, argument: str, key: str) -> None:
        super().__init__(f"must not hold the key {key[:100]!r}, which is the name of another parameter")
        self.argument = argument


def path_text(parameter: Parameter, value: object) -> str:
    """Returns the text for ``{name}`` in the path. No character of *value* ends a segment."""
    name = quote(parameter.name, safe="")
    if parameter.as_json:
        return _encoded(write_json(value))
    match parameter.style:
        case "label":
            return "." + _simple(value, parameter.explode, "." if parameter.explode else ",")
        case "matrix":
            if parameter.explode and isinstance(value, list):
                return "".join(f";{name}={_encoded(text_of(item))}" for item in value)
            if parameter.explode and isinstance(value, Mapping):
                _check_keys(parameter, value)
                return "".join(f";{_encoded(key)}={_encoded(text_of(item))}" for key, item in value.items())
            return f";{name}={_simple(value, False, ',')}"
        case _:
            return _simple(value, parameter.explode, ",")


def query_pairs(parameter: Parameter, value: object) -> list[str]:
    """Returns encoded ``name=value`` pieces, to be joined by ``&``; none for an empty list or object."""
    name = quote(parameter.name, safe="[]")
    keep = _RESERVED_KEPT if parameter.allow_reserved else ""
    if parameter.as_json:
        return [f"{name}={_encoded(write_json(value), keep)}"]
    match value:
        case list() | Mapping() if parameter.style == "deepObject":
            _check_deep_keys(parameter, value)
            return _deep(name, value, keep, 0)
        case list():
            texts = [_encoded(text_of(item), keep) for item in value]
            if parameter.explode:
                return [f"{name}={text}" for text in texts]
            return [f"{name}={_DELIMITERS[parameter.style].join(texts)}"] if texts else []
        case Mapping():
            if parameter.explode:
                _check_keys(parameter, value)
            pairs = [(_encoded(key), _encoded(text_of(item), keep)) for key, item in value.items()]
            if parameter.explode:
                return [f"{key}={text}" for key, text in pairs]
            joined = _DELIMITERS[parameter.style].join(text for pair in pairs for text in pair)
            return [f"{name}={joined}"] if pairs else []
        case _:
            return [f"{name}={_encoded(text_of(value), keep)}"]


def header_text(parameter: Parameter, value: object) -> str:
    """Returns the header's value, not encoded. The caller checks whether it can be sent."""
    if parameter.as_json:
        return write_json(value)
    match value:
        case list():
            return ",".join(map(text_of, value))
        case Mapping():
            sign = "=" if parameter.explode else ","
            return ",".join(f"{key}{sign}{text_of(item)}" for key, item in value.items())
        case _:
            return text_of(value)


def cookie_text(parameter: Parameter, value: object) -> str:
    """Returns ``name=value``, encoded. Lists and objects are joined by commas, because a cookie has one value."""
    text = _encoded(write_json(value)) if parameter.as_json else _simple(value, False, ",")
    return f"{parameter.name}={text}"


def text_of(value: object) -> str:
    """Returns a single value as a URL has it: ``true``, ``3``, a text itself, nothing for null, otherwise JSON."""
    match value:
        case str():
            return value
        case None:
            return ""
        case float() if value.is_integer() and abs(value) < 2**53:
            return str(int(value))  # 3.0 is an integer in JSON Schema, but not to every server
        case _:
            return write_json(value)


def _check_keys(parameter: Parameter, value: Mapping[str, Any]) -> None:
    """Raises NameTaken. The keys of an exploded object stand beside the other parameters."""
    taken = {form for name in parameter.others for form in _as_servers_read(name)}
    for key in value:
        if _as_servers_read(key) & taken:
            raise NameTaken(parameter.argument, key)


def _check_deep_keys(parameter: Parameter, value: Mapping[str, Any] | list[Any]) -> None:
    taken = {_folded(name) for name in parameter.others}
    for pair in _deep(parameter.name, value, "", 0):
        name = _folded(pair.partition("=")[0])
        if name in taken:
            raise NameTaken(parameter.argument, name.removeprefix(_folded(parameter.name)))


def _as_servers_read(name: str) -> frozenset[str]:
    """Returns the forms in which the least careful servers compare names: up to a bracket, a dot or a blank as an
    underscore; and a bracket that stays open as one (PHP)."""
    name = _folded(name).replace(".", "_").replace(" ", "_")
    return frozenset((name.partition("[")[0], name.replace("[", "_", 1)))


def _folded(name: str) -> str:
    """Returns *name* decoded as often as it is encoded, up to a NUL; without case, hidden characters and blanks around
    it, and with letters of another shape as plain ones."""
    for _ in range(_MAX_DECODINGS):
        if (decoded := unquote(name)) == name:
            break
        name = decoded
    name = unicodedata.normalize("NFKC", name.partition("\0")[0])
    return "".join(char for char in name if unicodedata.category(char) not in ("Cc", "Cf")).strip().casefold()


def _simple(value: object, explode: bool, delimiter: str) -> str:
    match value:
        case list():
            return delimiter.join(_encoded(text_of(item)) for item in value)
        case Mapping():
            sign = "=" if explode else ","
            return delimiter.join(f"{_encoded(key)}{sign}{_encoded(text_of(item))}" for key, item in value.items())
        case _:
            return _encoded(text_of(value))


def _deep(name: str, value: Mapping[str, Any] | list[Any], keep: str, depth: int) -> list[str]:
    """Returns the pairs of an object or a list. The specification leaves lists open: the places in brackets are what
    services with lists of objects read (Stripe's, those behind qs or PHP)."""
    pairs: list[str] = []
    members = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, item in members:
        inner = f"{name}[{_encoded(str(key))}]"
        if isinstance(item, Mapping | list) and depth < _MAX_DEEP:
            pairs += _deep(inner, item, keep, depth + 1)
        else:
            pairs.append(f"{inner}={_encoded(text_of(item), keep)}")
    return pairs


def _encoded(text: str, keep: str = "") -> str:
    return quote(text, safe=keep)


def write_json(value: object) -> str:
    """Returns compact JSON. Raises ValueError for a number that JSON cannot write."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)

"""The destinations in the arguments of a call, and in texts (ACCESS-260, ACCESS-261).

A *destination* is an e-mail address, a URL or an IBAN anywhere in the arguments, or the whole value of an argument that
is named like one (``to``, ``channel``, ``webhook_url``). Parsers disagree on where an address ends. Therefore any text
that a parser could read as an address is a destination, and only an exact match makes a destination known.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import islice
from typing import Any
from unicodedata import normalize
from urllib.parse import unquote

import msgspec

# If the name of an argument ends like this, its whole value is a destination. Chosen with AgentDojo in view, before the
# other traces of docs/security/flow.md were replayed.
_CHANNELS = "channel|chat|room|conversation|group|recipient|thread"
_REQUESTS = re.compile(r"(.*_)?(urls?|uri|link|href|website|site|webhook|callback|endpoint|host(name)?|domain|remote)")
_NAMED = re.compile(
    r"(.*_)?(to|cc|bcc|recipients?|receivers?|emails?|mail|address(es)?|participants?|attendees?|invitees?|guests?|"
    rf"payee|beneficiary|iban|account|users?|username|handle|phone|target|destination|wallet|({_CHANNELS})s?|"
    rf"({_CHANNELS})_(ids?|name)|(phone|account|to)_number)|{_REQUESTS.pattern}"
)
_ORIGINS = ("from_", "sender", "source")
_PARTS = ("value", "name", "id")
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# Values that are no destination. ``_SPAN`` (dates, times, small numbers) applies only to names that end with ``to``.
_NOBODY = re.compile("me|self|none|null|default|localhost")
_SPAN = re.compile(
    r"\d{4}([-/])\d\d?\1\d\d?([T ][\d:.+Z-]*)?|\d\d?([./])\d\d?\3\d{2,4}|\d\d?:\d\d(:\d\d)?|\d{1,6}(\.\d+)?|"
    r"[a-z]{2}|[A-Z]{3}|today|tomorrow|now"
)
_SPAN_NAME = re.compile(r"(.*_)?to")
_URL_HEAD = re.compile(r"(https?):[/\\]*|([a-z][a-z0-9+.-]+):(?://|\\\\)", re.IGNORECASE)
# File names with these endings are hosts too, and not meant.
_FILE = re.compile(r"[\w-]+\.(md|sh|rs|py|zip|mov|pl|so|cc|tf|ps|app)")
# In bytes of UTF-8, and with all but delimiters: an address with letters that only look Latin is one address, another.
_END = r"\s<>()\[\]{}\"`,;|\\"
_NOT_DOMAIN = _END + "@:=/'!?#&%+~^$"
_SCHEMES = r"\b[Hh][Tt][Tt][Pp][Ss]?:[/\\]*|\b[A-Za-z][A-Za-z0-9+.-]+:(?://|\\\\)|\b[Ww][Ww][Ww]\."
_PLACES = (
    rf"(?:{_SCHEMES})(?:[^\s/?#<>]*@)?(?:\[[^\]\s]*\])?[^{_END}']*",
    rf"[^{_END}@:=/]+@(?:[^{_NOT_DOMAIN}.]+\.)+(?:xn--[A-Za-z0-9-]+|\pL{{2,}})",
    r"\b[A-Z]{2}\d{2}(?:[A-Z0-9]{10,30}|(?:[ -][A-Z0-9]{4}){2,7}(?:[ -][A-Z0-9]{1,3})?)\b",
)
_IBAN = re.compile(r"[A-Z]{2}\d{2}[ A-Z0-9-]+")
_CUT_OFF = ".,:;!?'*_"
_HIDES_MORE = re.compile(r"@|\\|://")
# ``Ann Smith <place>``: behind a place only what closes it, since some readers go on with the address there.
_BEFORE, _BEHIND = re.compile(r"[\w .'\"-]*[<(\s'\"]*"), re.compile(r"[>)\s'\"]*")
_BORDERS = dict.fromkeys(map(ord, ':,;|\t"{}[]'), "\n")
_SHORTEST_IBAN = 14
_MOST_SEGMENTS = 16
_MOST_WORDS, _MOST_CHARS = 4, 80
_MOST_AT_ONCE = 200
_MOST_VALUES = 500
"""Of one result: further ones stay unknown, so that they ask."""
_NOT_WORDS = frozenset(("data", "blob", "_meta", "mimeType", "type"))
"""The fields of MCP results that are no words: bytes, and what clients do not show to models."""


@dataclass(frozen=True, slots=True)
class Destination:
    """*text* is copied from the arguments. The destination is known if one of its *names* is known. A URL has the name
    of its host and of each parent folder (``//host/folder``), because a known folder covers everything below it. The
    last name is its own. Without names it is never known. *requested*: even a read-only tool sends data there."""

    text: str
    names: tuple[str, ...]
    requested: bool = False


_TOO_MANY = Destination("200 destinations or more", (), requested=True)
"""Replaces the destinations of a call that has too many to check, and is never known."""


def destinations_in(args: Mapping[str, Any], also: frozenset[str] = frozenset()) -> list[Destination]:
    """Returns the destinations in *args* without duplicates. Every value of an argument in *also* is one."""
    found: dict[str, Destination] = {}
    for name, text in _texts(args, decode=True):
        named = name in also or _is_like(_NAMED, name)
        requested = named and _is_like(_REQUESTS, name)
        if requested:
            text = re.sub(r"[\t\r\n]", "", text)  # as URLs are read
        places = _all_places(text)
        pieces = [] if not named else [text] if requested else re.split(r"[,;\n]+", text)
        tokens = [token for token in text.split() if _HIDES_MORE.search(token)] if places and not requested else []
        if max(len(found), len(places), len(pieces), len(tokens)) >= _MOST_AT_ONCE:
            return [_TOO_MANY]
        if name not in also:
            pieces = [piece for piece in pieces if not _names_nobody(name, piece.strip())]
        for each in (*_with_inner(places, text), *_doubtful(pieces, places), *_hiding(tokens, places)):
            found[each] = Destination(each, names := _names_of(each), requested or names[-1].startswith("//"))
    return list(found.values())


def _names_nobody(name: str, value: str) -> bool:
    return _NOBODY.fullmatch(value) is not None or (_is_like(_SPAN_NAME, name) and _SPAN.fullmatch(value) is not None)


def _with_inner(places: Sequence[str], text: str) -> Iterator[str]:
    """Yields *places*, the places within the path or query of each URL, and the percent-encoded places of *text*."""
    yield from places
    for place in places:
        if _URL_HEAD.match(place):
            yield from _all_places(unquote(place[len("https://") :]))
    if "%" in text:
        yield from _all_places(unquote(text))


def _doubtful(pieces: Iterable[str], places: Sequence[str]) -> Iterator[str]:
    """Yields the pieces of a named value that hold more than one of *places* and a person's name. Another parser could
    find a different address in them."""
    for piece in filter(None, map(str.strip, pieces)):
        parted = (piece.partition(place) for place in places if place in piece)
        if not any(_BEFORE.fullmatch(before) and _BEHIND.fullmatch(behind) for before, _, behind in parted):
            yield piece


def _hiding(tokens: Iterable[str], places: Sequence[str]) -> Iterator[str]:
    """Yields the words that hold one of *places* and further characters that could turn it into another address."""
    for token in tokens:
        left = _without(places, token)
        if left != token and _HIDES_MORE.search(left):
            yield token


def _without(places: Iterable[str], text: str) -> str:
    for place in places:
        text = text.replace(place, " ")
    return text.strip()


def requests_among(destinations: Iterable[Destination]) -> list[Destination]:
    """Returns the destinations to which a read-only tool sends data: fetching a URL sends a request to its host."""
    return [each for each in destinations if each.requested]


def own_names_in(text: str) -> Iterator[str]:
    """Yields the names of the first 200 addresses, URLs and IBANs in *text*. Takes a millisecond for 100 kB."""
    yield from (_names_of(place)[-1] for place in _all_places(text))


def values_in(result: Mapping[str, Any], args: Mapping[str, Any]) -> list[str]:
    """Returns the names of up to 500 destinations in *result*, an MCP result: places, and values of at most four words.

    Omits values that consist of words of *args*: a tool that repeats its arguments is not their source.
    """
    found = dict.fromkeys(islice(_values(result), _MOST_VALUES))
    if not args:
        return list(found)
    texts = " ".join(text for _, text in _texts(args, decode=True))
    asked = set(_words(f"{texts} {unquote(normalize('NFKC', texts))}"))
    return [value for value in found if not asked.issuperset(_words(value))]


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def _values(result: Mapping[str, Any]) -> Iterator[str]:
    texts = [text for _, text in _texts(result, _NOT_WORDS)]
    # Places first: they are what a destination mostly is.
    for text in texts:
        yield from own_names_in(text)
    for text in texts:
        pieces = (_plain(piece) for piece in text.translate(_BORDERS).split("\n") if len(piece) <= _MOST_CHARS)
        yield from (piece for piece in pieces if piece and piece.count(" ") < _MOST_WORDS)


def _texts(value: Any, unread: frozenset[str] = frozenset(), *, decode: bool = False) -> Iterator[tuple[str, str]]:
    """Yields the texts and numbers in *value*, each with the name of its field. With *decode* it also yields the names
    of fields, and the content of texts that are JSON."""
    left: list[tuple[str, Any]] = [("", value)]
    while left:
        name, each = left.pop()
        if isinstance(each, Mapping):
            # ``to: {"value": ...}`` is a value of ``to``.
            parts = _PARTS if _is_like(_NAMED, name) else ()
            for key in reversed(list(each)):
                if key not in unread:
                    left.append((name if key in parts else str(key), each[key]))
                    if decode and "." in str(key):  # as every address has one
                        yield "", str(key)
        elif isinstance(each, list | tuple):
            left += [(name, inner) for inner in reversed(each)]
        elif isinstance(each, str | int | float) and not isinstance(each, bool):
            yield name, str(each)
            if decode and isinstance(each, str) and each[:1] in "[{" and each:
                try:
                    left.append((name, msgspec.json.decode(each)))
                except (ValueError, RecursionError):
                    continue


def _all_places(text: str) -> list[str]:
    # Most arguments are short words. The shortest place without a dot or colon is an IBAN.
    if len(text) < _SHORTEST_IBAN and "." not in text and ":" not in text:
        return []
    data = text.encode("utf-8", "surrogatepass")
    spans = (match.span() for match in islice(_pattern().finditer(data), _MOST_AT_ONCE))
    found = (data[start:end].decode("utf-8", "replace") for start, end in spans)
    return [each if each.endswith("..") else each.rstrip(_CUT_OFF) for each in found if not _is_only_like_iban(each)]


def _is_only_like_iban(text: str) -> bool:
    """ISO 7064, mod 97: only one text in a hundred that is no IBAN passes."""
    if _IBAN.fullmatch(text) is None:
        return False
    plain = re.sub("[ -]", "", text)
    return int("".join(str(int(each, 36)) for each in plain[4:] + plain[:4])) % 97 != 1


@lru_cache(maxsize=1_024)
def _is_like(names: re.Pattern[str], name: str) -> bool:
    plain = _HUMPS.sub("_", name[:_MOST_CHARS]).replace("-", "_").lower()
    return names.fullmatch(plain) is not None and not plain.startswith(_ORIGINS)


def _names_of(text: str) -> tuple[str, ...]:
    head = _URL_HEAD.match(text)
    if head is None and not text.lower().startswith("www."):
        return (re.sub("[ -]", "", text) if _IBAN.fullmatch(text) else _plain(text),)
    rest = text[head.end() :] if head else text
    path, mark, query = rest.partition("#")[0].partition("?")
    authority, *segments = path.rstrip("/").split("/")
    host = authority.rpartition("@")[2].lower()
    parts = [f"//{host}", *segments]
    whole = "/".join(parts) + mark + query
    if not host or _leads_back(path):
        return (whole,)
    below = ("/".join(parts[:depth]) for depth in range(1, min(len(parts), _MOST_SEGMENTS) + 1))
    return tuple(dict.fromkeys((*below, whole)))


def _leads_back(path: str) -> bool:
    """Returns True if a server may resolve *path* to a parent folder. No known folder covers such a path."""
    return ".." in path or "\\" in path or "%2" in path or "%5c" in path.lower()


def _plain(text: str) -> str:
    return " ".join(text.split()).lower()


def stands_in(destination: Destination, words: Sequence[str], named: Collection[str]) -> bool:
    """Returns True if the user's *words* contain one of its names as a whole word, address or path. *named* holds the
    ``own_names_in`` these words."""
    if any(name in named for name in destination.names):
        return True
    names = [name.removeprefix("//") for name in destination.names if not _FILE.fullmatch(name.removeprefix("//"))]
    # The case of a path counts.
    pairs = ((name, text if "/" in name else text.lower()) for name in names if name for text in words)
    return any(name in text and re.search(_whole(name), text) for name, text in pairs)


def _whole(name: str) -> str:
    # Not next to a character that continues the name, nor to a dot, slash or colon that leads to one.
    before, after = r"(?<![\w@%+\\-])(?<![\w/@][./:'])", r"(?![\w@%+\\-])(?![./:'?#&=][\w/@])"
    return f"{before}{re.escape(name)}{after}"


@cache
def _pattern() -> Any:
    """Compiles the pattern. Imports RE2 only if a flow rule needs it, as the filters do."""
    import re2  # type: ignore[import-untyped]  # google-re2 ships no types

    options = re2.Options()
    options.log_errors = False
    return re2.compile("|".join(f"(?:{pattern})" for pattern in _PLACES).encode(), options)


def is_allowed(glob: str, destination: Destination) -> bool:
    """Returns True if *glob* matches: ``*@example.org``, ``https://*.example.org/*``, or a value with ``*``."""
    if not destination.names:
        return False
    name, head = destination.names[-1], _URL_HEAD.match(destination.text)
    if name.startswith("//"):
        name = f"{(head[1] or head[2]).lower() if head else 'https'}:{name}"
    return _allowed(glob).fullmatch(name) is not None and not _leads_back(name)


@lru_cache(maxsize=1_024)
def _allowed(glob: str) -> re.Pattern[str]:
    """Compiles *glob*. A ``*`` before the path never matches beyond a host, a part of an address, or a value."""
    scheme, colon, rest = glob.partition("://")
    head, _, path = (rest if colon else glob).partition("/")
    below = "(?:[/?].*)?" if colon and path in ("", "*") else f"/{_starred(path, '.*')}" if path else ""
    scheme = re.escape(scheme + colon) if colon else ""
    return re.compile(scheme + _starred(head, r"[^\s,;<>\"'@:/?#\\]*") + below, re.IGNORECASE)


def _starred(glob: str, star: str) -> str:
    return star.join(map(re.escape, glob.split("*")))

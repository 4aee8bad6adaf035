"""The base of the filters: finds patterns in calls and results, and replaces or refuses what was found (ROUTE-27).

The time is linear in the text, because RE2 never goes back. Names of fields and long numbers are searched as well as
texts, and bytes in base64 for what they say (ROUTE-39). The ``_meta`` of a result and of its blocks is between server
and client (ROUTE-26): only a filter that says so reads it (ACCESS-82).
"""

import asyncio
from binascii import b2a_base64
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, ClassVar, Literal

from wicketgate.plugin_api import ALLOW, Allow, Block, Message, PluginConfig, Request, Result, SecurityPlugin
from wicketgate.results.bulk import base64_bytes
from wicketgate.results.firewall import is_bulky

Judge = Callable[[bytes], str | None]
"""Returns the kind of a match, such as ``email``; None if the match only looks like one."""

_BETWEEN = "\n\x00\n"
"""Joins texts that are searched as one. No pattern begins or ends with it."""

_DENSE_FINDINGS = 500
_DENSE_BYTES = 24
"""A text with more findings than the first, and more than one in so many bytes, is replaced whole: it holds nearly
nothing that is not a finding, and each costs a microsecond or two."""

_SURE_BYTES = 16
"""In data that is no text, shorter findings are chance."""

_LONG_NUMBER, _TOO_LONG_NUMBER = 10**12, 10**19
"""A number of thirteen to nineteen digits may be that of a card."""

Role = Literal["any", "result", "blocks", "block", "messages", "message"]
"""The part that a value has in a result of ``tools/call``, ``resources/read`` or ``prompts/get``."""

_ROLES: Mapping[tuple[Role, str], Role] = {
    ("result", "content"): "blocks",
    ("result", "contents"): "blocks",
    ("result", "messages"): "messages",
    ("message", "content"): "block",
    ("block", "resource"): "block",
    ("blocks", "resource"): "block",
}
_NOT_READ = frozenset({"_meta"})
"""The fields of results and blocks that are not for models."""
_ELEMENTS: Mapping[Role, Role] = {"blocks": "block", "messages": "message"}


class Scanner:
    """Finds and replaces patterns, which are for the UTF-8 bytes of a text and must not match the empty text.

    *marker* gives the replacement for a kind of finding.
    """

    def __init__(self, patterns: Iterable[str], judge: Judge, marker: Callable[[str], str]) -> None:
        # Imported with the first filter (OPS-374): the names of all filters are known without it.
        import re2  # type: ignore[import-untyped]  # google-re2 ships no types

        # One automaton for all patterns, so that a text is read once.
        options = re2.Options()
        options.log_errors = False
        self._pattern = re2.compile("|".join(f"(?:{pattern})" for pattern in patterns).encode(), options)
        self._judge = judge
        self._marker = marker

    def suspects(self, texts: Sequence[str]) -> Sequence[str]:
        """Returns the texts that may hold a finding; much cheaper than searching each by itself."""
        joined = _BETWEEN.join(texts)
        data = joined.encode("utf-8", "surrogatepass")
        match = self._pattern.search(data)
        if match is None or len(texts) == 1:
            return texts if match else ()
        # A match lies in one or more of the joined texts, found by where each of them ends.
        plain = len(data) == len(joined)
        lengths = [len(text if plain else text.encode("utf-8", "surrogatepass")) + len(_BETWEEN) for text in texts]
        ends = list(accumulate(lengths))
        found: list[str] = []
        while match is not None:
            start, stop = match.span()
            first, last = bisect_right(ends, start), bisect_left(ends, stop)
            found += texts[first : last + 1]
            # One match makes a text suspect, so the search goes on behind that text.
            match = self._pattern.search(data, ends[last]) if ends[last] < len(data) else None
        return found

    def replace(self, text: str, found: Counter[str]) -> str:
        """Returns *text* with markers for findings, counted by kind in *found*; the same object if there are none."""
        data = text.encode("utf-8", "surrogatepass")
        pieces: list[bytes] = []
        end = 0
        kinds: Counter[str] = Counter()
        for match in self._pattern.finditer(data):
            start, stop = match.span()
            kind = self._judge(data[start:stop])
            if kind is None:
                continue
            kinds[kind] += 1
            # Replace a dense text whole.
            if len(pieces) > 2 * _DENSE_FINDINGS and stop < len(pieces) // 2 * _DENSE_BYTES:
                found.update(kinds)
                return self._marker("text")
            pieces += (data[end:start], self._marker(kind).encode())
            end = stop
        if not pieces:
            return text
        found.update(kinds)
        return b"".join((*pieces, data[end:])).decode("utf-8", "surrogatepass")

    def replace_bytes(self, data: bytes, found: Counter[str]) -> bytes:
        """As ``replace``, for bytes. What is no UTF-8 keeps its length, so that a file stays whole around a finding."""
        if self._pattern.search(data) is None:
            return data
        try:
            text = data.decode()
        except UnicodeDecodeError:
            pass
        else:
            clean = self.replace(text, found)
            return data if clean is text else clean.encode()
        pieces: list[bytes] = []
        end = 0
        for match in self._pattern.finditer(data):
            start, stop = match.span()
            if stop - start < _SURE_BYTES or (kind := self._judge(data[start:stop])) is None:
                continue
            found[kind] += 1
            pieces += (data[end:start], self._marker(kind).encode()[: stop - start].ljust(stop - start))
            end = stop
        return b"".join((*pieces, data[end:])) if pieces else data


class FilterConfig(PluginConfig):
    """``redact`` replaces findings by markers, ``block`` refuses the call or result, ``audit_only`` changes nothing.

    All three note the kinds of what was found in the audit record, never the text.
    """

    action: Literal["redact", "block", "audit_only"] = "redact"
    on: tuple[Literal["request", "result"], ...] = ("request", "result")


class TextFilter(SecurityPlugin):
    """Base of the filters. *title* names the filter to a caller whose call is blocked."""

    title: ClassVar[str]
    unread: ClassVar[frozenset[str]] = _NOT_READ
    """The fields of a result and its blocks that are left out."""
    Config: ClassVar[type[PluginConfig]] = FilterConfig
    config: FilterConfig

    def __init__(self, config: FilterConfig) -> None:
        super().__init__(config)
        self.scanner = self.make_scanner()

    def make_scanner(self) -> Scanner:
        raise NotImplementedError

    async def on_request(self, request: Request) -> Allow | Block:
        if "request" not in self.config.on:
            return ALLOW
        findings = await self._search(request.arguments, "any")
        if findings.blocked:
            return Block(self.title)
        if findings.instead is None:
            return Allow(note=findings.note) if findings.note else ALLOW
        return Allow(replace(request, arguments=findings.instead), findings.note)

    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        if "result" not in self.config.on:
            return ALLOW
        # The contents repeat the requested address, which the caller knows already.
        known = request.name if request.method == "resources/read" else None
        findings = await self._search(result, "result", known)
        if findings.blocked:
            return Block(self.title)
        return Allow(findings.instead, findings.note) if findings.note else ALLOW

    async def on_message(self, request: Request, message: Message) -> Allow | Block:
        if ("result" if message.to == "client" else "request") not in self.config.on:
            return ALLOW
        findings = await self._search(message.params, "any")
        if findings.blocked:
            return Block(self.title)
        return Allow(findings.instead, findings.note) if findings.note else ALLOW

    async def _search(self, value: Mapping[str, Any], role: Role, known: str | None = None) -> "_Findings":
        if is_bulky(value):
            return await asyncio.to_thread(self._search_now, value, role, known)
        return self._search_now(value, role, known)

    def _search_now(self, value: Mapping[str, Any], role: Role, known: str | None) -> "_Findings":
        # Search first, because most texts hold nothing; then replace in the texts that may hold a finding.
        plain, encoded = _parts(value, role, self.unread)
        texts = [text for text in dict.fromkeys(_texts(plain)) if text != known]
        binaries = {text: data for text in encoded if (data := base64_bytes(text)) is not None}
        if not texts and not binaries:
            return _NO_FINDINGS
        found: Counter[str] = Counter()
        cleaned = {text: self.scanner.replace(text, found) for text in self.scanner.suspects(texts)} if texts else {}
        for text, data in binaries.items():
            if (clean := self.scanner.replace_bytes(data, found)) is not data:
                cleaned[text] = b2a_base64(clean, newline=False).decode()
        if not found:
            return _NO_FINDINGS
        # Say what was found, and do what the configuration says.
        note = ", ".join(f"{kind}: {count}" for kind, count in sorted(found.items()))
        if self.config.action != "redact":
            return _Findings(note, blocked=self.config.action == "block")
        replaced = {text: clean for text, clean in cleaned.items() if clean is not text}
        return _Findings(note, _replace_texts(value, replaced, role, self.unread))


@dataclass(frozen=True, slots=True)
class _Findings:
    """*note*: the findings by kind. *instead*: the value to use, if it changes. *blocked*: the value must not pass."""

    note: str = ""
    instead: Mapping[str, Any] | None = None
    blocked: bool = False


_NO_FINDINGS = _Findings()


def _texts(waiting: list[object]) -> Iterator[str]:
    """Yields every text, in no particular order; without recursion, because arguments can be nested deeply."""
    # Nearly all time goes here, so the exact type is compared first.
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif type(each) is dict or isinstance(each, Mapping):
            yield from (key for key in each if isinstance(key, str))
            waiting.extend(each.values())
        elif isinstance(each, list | tuple):
            waiting.extend(each)
        elif isinstance(each, int) and _LONG_NUMBER <= each < _TOO_LONG_NUMBER:
            yield str(each)


def _replace_texts(value: Any, replaced: Mapping[str, str], role: Role, unread: frozenset[str]) -> Any:
    """Returns a copy of *value* with other texts."""
    # Each container is copied when it is reached, and its members are replaced in the copy.
    root: list[Any] = [value]
    waiting: list[tuple[Any, Any, Role]] = [(root, 0, role)]
    while waiting:
        holder, place, role = waiting.pop()
        each = holder[place]
        if isinstance(each, str):
            holder[place] = replaced.get(each, each)
        elif isinstance(each, Mapping):
            holder[place] = copy = _rename_fields(each, replaced) if role == "any" else dict(each)
            keys: Sequence[Any] = tuple(copy)
            if role != "any":
                keys = (*_searched_fields(each, role, unread), *_byte_fields(each, role))
            waiting.extend((copy, key, _ROLES.get((role, key), "any")) for key in keys)
        elif isinstance(each, list | tuple):
            holder[place] = items = list(each)
            inside = _ELEMENTS.get(role, "any")
            waiting.extend((items, index, inside) for index in range(len(items)))
        elif isinstance(each, int) and _LONG_NUMBER <= each < _TOO_LONG_NUMBER:
            holder[place] = replaced.get(str(each), each)
    return root[0]


def _parts(value: object, role: Role, unread: frozenset[str]) -> tuple[list[object], list[str]]:
    """Returns the values inside an MCP shape that have no such shape themselves, and the texts in the places that hold
    bytes in base64."""
    plain: list[object] = []
    encoded: list[str] = []
    waiting: list[tuple[object, Role]] = [(value, role)]
    while waiting:
        each, role = waiting.pop()
        if role != "any" and isinstance(each, Mapping):
            encoded += (each[key] for key in _byte_fields(each, role))
            waiting.extend((each[key], _ROLES.get((role, key), "any")) for key in _searched_fields(each, role, unread))
        elif role != "any" and isinstance(each, list | tuple):
            inside = _ELEMENTS.get(role, "any")
            waiting.extend((inner, inside) for inner in each)
        else:
            plain.append(each)
    return plain, encoded


def _searched_fields(each: Mapping[str, Any], role: Role, unread: frozenset[str]) -> Sequence[str]:
    """Returns the fields of an MCP shape that are searched as they are."""
    left_out = {*_byte_fields(each, role), *(unread if role in ("result", "block") else ())}
    return [key for key in each if key not in left_out]


def _byte_fields(each: Mapping[str, Any], role: Role) -> Sequence[str]:
    """Returns the fields of an MCP shape that hold bytes in base64. Other characters in their place are a text."""
    if role not in ("block", "blocks"):  # a list may be a single block
        return ()
    field = "data" if each.get("type") in ("image", "audio") else "blob"
    inner = each.get(field)
    return (field,) if isinstance(inner, str) and base64_bytes(inner) is not None else ()


def _rename_fields(each: Mapping[Any, Any], replaced: Mapping[str, str]) -> dict[Any, Any]:
    """Returns a copy with other names of fields; equal names are numbered, so that nothing is lost."""
    if not any(key in replaced for key in each):
        return dict(each)
    copy: dict[Any, Any] = {}
    times: dict[str, int] = {}
    for key, inner in each.items():
        name = replaced.get(key, key) if isinstance(key, str) else key
        if name in copy:
            times[name] = times.get(name, 1) + 1
            name = f"{name} ({times[name]})"
        copy[name] = inner
    return copy

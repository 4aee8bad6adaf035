"""What the filters share: where texts are in a call and in a result, and what is done about a finding (S2; gatekit E).

Arguments, text blocks, embedded texts and structured content are read, every string in them; pictures and sound are
not, and neither are the names of fields.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from app.gateway.plugins import ALLOW, Allow, Block, PluginConfig, Request, Result, SecurityPlugin
from app.plugins.findings import Scanner

_UNREAD = frozenset({"data", "blob"})
"""Fields of content blocks that hold bytes as text."""
_OFF_THE_LOOP_CHARS = 1 << 18


class FilterConfig(PluginConfig):
    """``redact`` puts a marker in place of each finding, ``block`` refuses the whole call or result, ``audit_only``
    changes nothing; all three note in the audit record what was found, by kind, never the text."""

    action: Literal["redact", "block", "audit_only"] = "redact"
    on: tuple[Literal["request", "result"], ...] = ("request", "result")


class TextFilter(SecurityPlugin):
    """Base of the filters. *title* names it to a caller whose call is blocked."""

    title: ClassVar[str]
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
        looked = await self._look(list(_every_string(request.arguments)))
        if looked.blocked:
            return Block(self.title)
        if not looked.replaced:
            return Allow(note=looked.note) if looked.note else ALLOW
        return Allow(replace(request, arguments=_with(request.arguments, looked.replaced)), looked.note)

    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        if "result" not in self.config.on:
            return ALLOW
        shown = [result.get("content"), result.get("structuredContent")]  # _meta is between server and client
        looked = await self._look(list(_every_string(shown)))
        if looked.blocked:
            return Block(self.title)
        if not looked.replaced:
            return Allow(note=looked.note) if looked.note else ALLOW
        return Allow(_with(result, looked.replaced), looked.note)

    async def _look(self, texts: list[str]) -> "_Looked":
        if sum(map(len, texts)) < _OFF_THE_LOOP_CHARS:
            return self._looked(texts)
        return await asyncio.to_thread(self._looked, texts)

    def _looked(self, texts: list[str]) -> "_Looked":
        if not texts or not self.scanner.might_hold(texts):
            return _NOTHING
        found: Counter[str] = Counter()
        cleaned = {text: self.scanner.replace(text, found) for text in dict.fromkeys(texts)}
        if not found:
            return _NOTHING
        note = ", ".join(f"{kind}: {count}" for kind, count in sorted(found.items()))
        if self.config.action == "redact":
            return _Looked(note, {text: clean for text, clean in cleaned.items() if clean is not text})
        return _Looked(note, blocked=self.config.action == "block")


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found, by kind; the texts that are to be others; and whether it must not pass at all."""

    note: str = ""
    replaced: Mapping[str, str] = field(default_factory=dict)
    blocked: bool = False


_NOTHING = _Looked()


def _every_string(value: object) -> Iterator[str]:
    """Every string value, in no particular order; without recursion, for arguments can be nested as deep as JSON."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            waiting.extend(inner for key, inner in one.items() if key not in _UNREAD or not isinstance(inner, str))
        elif isinstance(one, list | tuple):
            waiting.extend(one)


def _with(value: Any, replaced: Mapping[str, str]) -> Any:
    """A copy with other strings; *value* itself stays as it was."""
    root: list[Any] = [value]
    waiting: list[tuple[Any, Any]] = [(root, 0)]
    while waiting:
        holder, key = waiting.pop()
        one = holder[key]
        if isinstance(one, str):
            holder[key] = replaced.get(one, one)
        elif isinstance(one, Mapping):
            holder[key] = copy = dict(one)
            waiting.extend((copy, inner) for inner in copy if inner not in _UNREAD and inner != "_meta")
        elif isinstance(one, list | tuple):
            holder[key] = items = list(one)
            waiting.extend((items, index) for index in range(len(items)))
    return root[0]

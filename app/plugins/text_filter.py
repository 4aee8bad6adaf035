"""What the filters share: what is done about a finding in a call or in its result (S2; gatekit E)."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

from app.gateway.plugins import ALLOW, Allow, Block, PluginConfig, Request, Result, SecurityPlugin
from app.plugins.findings import Scanner
from app.plugins.places import every_text, with_others

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
        looked = await self._look(list(every_text(request.arguments)))
        if looked.blocked:
            return Block(self.title)
        if not looked.replaced:
            return Allow(note=looked.note) if looked.note else ALLOW
        return Allow(replace(request, arguments=with_others(request.arguments, looked.replaced)), looked.note)

    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        if "result" not in self.config.on:
            return ALLOW
        looked = await self._look(list(every_text(result, "result")))
        if looked.blocked:
            return Block(self.title)
        if not looked.replaced:
            return Allow(note=looked.note) if looked.note else ALLOW
        return Allow(with_others(result, looked.replaced, "result"), looked.note)

    async def _look(self, texts: list[str]) -> "_Looked":
        if sum(map(len, texts)) < _OFF_THE_LOOP_CHARS:
            return self._looked(texts)
        return await asyncio.to_thread(self._looked, texts)

    def _looked(self, texts: list[str]) -> "_Looked":
        if not texts:
            return _NOTHING
        found: Counter[str] = Counter()
        suspects = self.scanner.might_hold(list(dict.fromkeys(texts)))
        cleaned = {text: self.scanner.replace(text, found) for text in suspects}
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

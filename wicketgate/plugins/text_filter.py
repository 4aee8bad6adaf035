"""What the filters share: what is done about a finding in a call or in its result (S2; gatekit E)."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from wicketgate.plugin_api import ALLOW, Allow, Block, PluginConfig, Request, Result, SecurityPlugin
from wicketgate.plugins.findings import Scanner
from wicketgate.plugins.places import Role, every_text, with_others
from wicketgate.results.firewall import is_bulky


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
        looked = await self._look(request.arguments, "any")
        if looked.blocked:
            return Block(self.title)
        if looked.instead is None:
            return Allow(note=looked.note) if looked.note else ALLOW
        return Allow(replace(request, arguments=looked.instead), looked.note)

    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        if "result" not in self.config.on:
            return ALLOW
        # The address that was asked for stands in the contents again; the caller has it.
        known = request.name if request.method == "resources/read" else None
        looked = await self._look(result, "result", known)
        if looked.blocked:
            return Block(self.title)
        return Allow(looked.instead, looked.note) if looked.note else ALLOW

    async def _look(self, value: Mapping[str, Any], role: Role, known: str | None = None) -> "_Looked":
        if is_bulky(value):
            return await asyncio.to_thread(self._looked, value, role, known)
        return self._looked(value, role, known)

    def _looked(self, value: Mapping[str, Any], role: Role, known: str | None) -> "_Looked":
        texts = [text for text in dict.fromkeys(every_text(value, role)) if text != known]
        if not texts:
            return _NOTHING
        found: Counter[str] = Counter()
        cleaned = {text: self.scanner.replace(text, found) for text in self.scanner.might_hold(texts)}
        if not found:
            return _NOTHING
        note = ", ".join(f"{kind}: {count}" for kind, count in sorted(found.items()))
        if self.config.action != "redact":
            return _Looked(note, blocked=self.config.action == "block")
        replaced = {text: clean for text, clean in cleaned.items() if clean is not text}
        return _Looked(note, with_others(value, replaced, role))


@dataclass(frozen=True, slots=True)
class _Looked:
    """What was found, by kind; what takes the place of what was looked at; and whether it must not pass at all."""

    note: str = ""
    instead: Mapping[str, Any] | None = None
    blocked: bool = False


_NOTHING = _Looked()

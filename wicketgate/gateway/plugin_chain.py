"""Plugins in their order, and what their verdicts come to: one chain for every face and the engine (S2, gatekit E).

Fail closed: what a critical plugin does wrong (raises, decides what is not its to decide, changes what may not change)
ends the call with nothing run or nothing shown.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from wicketgate.errors import Forbidden
from wicketgate.gateway.plugin_contract import checked, checked_tools
from wicketgate.plugin_api import Allow, Block, Complete, Continue, MiddlewarePlugin, Plugin, Request, Result

log = logging.getLogger("wicketgate.plugins")

GLOBAL = "_global"

_MAX_NOTE = 500

Phase = Literal["request", "result"]

StageOutcome = Literal["allowed", "blocked", "modified", "continued", "completed", "failed"]


class PluginFailed(Forbidden):
    """A critical plugin could not do its work; the reason is in the log."""


@dataclass(frozen=True, slots=True)
class Installed:
    """A plugin with its place: *handler* is the name it is configured by; lower *priority* runs first (0 to 100)."""

    handler: str
    plugin: Plugin
    priority: int = 50
    critical: bool = True


@dataclass(frozen=True, slots=True)
class Stage:
    """What one plugin did to one call, for the audit record: never the texts it saw."""

    handler: str
    phase: Phase
    outcome: StageOutcome
    note: str
    seconds: float


@dataclass(slots=True)
class Trail:
    """The stages that a call has passed, in order."""

    stages: list[Stage] = field(default_factory=list)


class PluginChain:
    """*by_server* maps an upstream's name, or ``_global``, to its plugins. A server's own entry takes the place of the
    global one of the same handler (G98). *now* measures seconds."""

    def __init__(self, by_server: Mapping[str, Sequence[Installed]], now: Callable[[], float]) -> None:
        self._by_server = {name: tuple(plugins) for name, plugins in by_server.items()}
        self._now = now
        self._ordered: dict[str, tuple[Installed, ...]] = {}

    def for_server(self, server: str) -> tuple[Installed, ...]:
        """In the order in which they run: by priority, and as configured where that is equal."""
        if server not in self._by_server:
            server = GLOBAL
        ordered = self._ordered.get(server)
        if ordered is None:
            own = self._by_server.get(server, ()) if server != GLOBAL else ()
            replaced = {installed.handler for installed in own}
            general = (i for i in self._by_server.get(GLOBAL, ()) if i.handler not in replaced)
            ordered = self._ordered[server] = tuple(sorted([*general, *own], key=lambda i: i.priority))
        return ordered

    async def on_request(self, request: Request, trail: Trail) -> Request | Complete:
        """The request as it is to be sent, or the answer of a plugin. Raises Forbidden or PluginFailed; then nothing
        was run. The chain is that of the server that was asked for, wherever it is redirected to."""
        for installed in self.for_server(request.server):
            began = self._now()
            try:
                verdict = checked(installed.plugin.kind, await installed.plugin.on_request(request), request, None)
            except Exception:
                self._failed(installed, trail, "request", began)
                continue
            match verdict:
                case Block(reason):
                    self._stage(installed, trail, "request", "blocked", reason, began)
                    raise Forbidden(f"Request blocked: {reason}", path=request.name)
                case Complete(note=note):
                    self._stage(installed, trail, "request", "completed", note, began)
                    return verdict
                case Allow(instead, note) | Continue(instead, note):
                    self._stage(installed, trail, "request", _outcome(verdict), note, began)
                    if isinstance(instead, Request):
                        request = instead
        return request

    async def on_result(self, server: str, request: Request, result: Result, trail: Trail) -> Result:
        """The result as it may be shown; *server* is the one that was asked for, *request* what was sent.

        Raises Forbidden or PluginFailed; then nothing of it may be shown.
        """
        for installed in self.for_server(server):
            began = self._now()
            try:
                verdict = checked(
                    installed.plugin.kind, await installed.plugin.on_result(request, result), request, result
                )
            except Exception:
                self._failed(installed, trail, "result", began)
                continue
            match verdict:
                case Block(reason):
                    self._stage(installed, trail, "result", "blocked", reason, began)
                    raise Forbidden(f"The tool has run; its result was withheld: {reason}", path=request.name)
                case Allow(instead, note) | Continue(instead, note):
                    self._stage(installed, trail, "result", _outcome(verdict), note, began)
                    if instead is not None and not isinstance(instead, Request):
                        result = instead
        return result

    def on_tools(self, server: str, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The definitions that exist here. Raises PluginFailed when a critical plugin raises."""
        for installed in self.for_server(server):
            if not isinstance(installed.plugin, MiddlewarePlugin):
                continue
            try:
                tools = checked_tools(installed.plugin.on_tools(server, tools))
            except Exception:
                log.exception("plugin %s failed on the tools of %s", installed.handler, server)
                if installed.critical:
                    raise PluginFailed(f"The plugin {installed.handler} failed on the tools of {server}.") from None
        return tools

    def _failed(self, installed: Installed, trail: Trail, phase: Phase, began: float) -> None:
        log.exception("plugin %s failed on a %s", installed.handler, phase)
        self._stage(installed, trail, phase, "failed", "", began)
        if installed.critical:
            told = "Request processing error: nothing was run." if phase == "request" else "Response filtering failed."
            raise PluginFailed(told) from None

    def _stage(
        self,
        installed: Installed,
        trail: Trail,
        phase: Phase,
        outcome: StageOutcome,
        note: str,
        began: float,
    ) -> None:
        trail.stages.append(Stage(installed.handler, phase, outcome, note[:_MAX_NOTE], self._now() - began))


def _outcome(verdict: Allow | Continue) -> StageOutcome:
    if verdict.instead is not None:
        return "modified"
    return "allowed" if isinstance(verdict, Allow) else "continued"

"""The chain of plugins, in their order, and the effect of their verdicts: one for every face and the engine.

It fails closed: a critical plugin that raises, decides what is not its to decide, or changes what may not change ends
the call with nothing run or nothing shown. Every verdict is checked before it is believed, because trusted plugins have
faults too (ROUTE-5, ROUTE-21, ROUTE-22).
"""

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from wicketgate.errors import Forbidden, UpstreamRefused
from wicketgate.plugin_api import (
    Allow,
    Block,
    Complete,
    Continue,
    Message,
    MiddlewarePlugin,
    Plugin,
    Request,
    Result,
    SecurityPlugin,
)

log = logging.getLogger("wicketgate.plugins")

GLOBAL = "_global"

_MAX_NOTE = 500

Phase = Literal["request", "result"]

StageOutcome = Literal["allowed", "blocked", "modified", "continued", "completed", "failed"]


class Blocked(Forbidden):
    """A plugin refused the request or the result."""


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
    """The effect of one plugin on one call, for the audit record: never the texts it saw."""

    handler: str
    phase: Phase
    outcome: StageOutcome
    note: str
    seconds: float


class PluginChain:
    """*by_server* maps an upstream's name, or ``_global``, to its plugins. A server's own entry takes the place of the
    global one of the same handler (ROUTE-18). *now* measures seconds."""

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

    async def around(
        self, request: Request, trail: list[Stage], send: Callable[[Request], Awaitable[Result]]
    ) -> Result:
        """The result as it may be shown, of *send* with the request as the plugins left it, or of a plugin that
        completes the call. Raises what *send* raises, Forbidden and PluginFailed."""
        server = request.server
        passed = await self.on_request(request, trail)
        if isinstance(passed, Complete):
            return await self.on_result(server, request, passed.result, trail)
        try:
            result = await send(passed)
        except UpstreamRefused as refused:
            # The words of a refusal come from the server like any result, so the plugins see them too.
            shown = await self.on_result(server, passed, _as_result(refused), trail)
            raise _refused_as(shown, refused) from None
        return await self.on_result(server, passed, result, trail)

    async def on_request(self, request: Request, trail: list[Stage]) -> Request | Complete:
        """The request as it is to be sent, or the answer of a plugin. Raises Forbidden or PluginFailed; then nothing
        was run. The chain is that of the server that was asked for, wherever it is redirected to."""
        for installed in self.for_server(request.server):
            began = self._now()
            try:
                verdict = _checked(installed.plugin.kind, await installed.plugin.on_request(request), request, None)
            except Exception:
                self._failed(installed, trail, "request", began)
                continue
            match verdict:
                case Block(reason):
                    self._stage(installed, trail, "request", "blocked", reason, began)
                    raise Blocked(f"Request blocked: {reason}", path=request.name)
                case Complete(note=note):
                    self._stage(installed, trail, "request", "completed", note, began)
                    return verdict
                case Allow(instead, note) | Continue(instead, note):
                    self._stage(installed, trail, "request", _outcome(verdict), note, began)
                    if isinstance(instead, Request):
                        request = instead
        return request

    async def on_result(self, server: str, request: Request, result: Result, trail: list[Stage]) -> Result:
        """The result as it may be shown; *server* is the one that was asked for, *request* what was sent.

        Raises Forbidden or PluginFailed; then nothing of it may be shown.
        """
        for installed in self.for_server(server):
            began = self._now()
            try:
                verdict = _checked(
                    installed.plugin.kind, await installed.plugin.on_result(request, result), request, result
                )
            except Exception:
                self._failed(installed, trail, "result", began)
                continue
            match verdict:
                case Block(reason):
                    self._stage(installed, trail, "result", "blocked", reason, began)
                    raise Blocked(f"The tool has run; its result was withheld: {reason}", path=request.name)
                case Allow(instead, note) | Continue(instead, note):
                    self._stage(installed, trail, "result", _outcome(verdict), note, began)
                    if instead is not None and not isinstance(instead, Request):
                        result = instead
        return result

    async def on_message(
        self, server: str, request: Request, message: Message, trail: list[Stage]
    ) -> Mapping[str, Any] | None:
        """The words of *message* as they may pass while *request* runs; None if they may not. Only security plugins
        see them; *trail* gets those that did more than allow."""
        phase: Phase = "result" if message.to == "client" else "request"
        for installed in self.for_server(server):
            plugin = installed.plugin
            if not isinstance(plugin, SecurityPlugin) or type(plugin).on_message is SecurityPlugin.on_message:
                continue
            began = self._now()
            try:
                verdict = _checked_words(await plugin.on_message(request, message))
            except Exception:
                log.exception("plugin %s failed on a message", installed.handler)
                self._stage(installed, trail, phase, "failed", "", began)
                if installed.critical:
                    return None
                continue
            match verdict:
                case Block(reason):
                    self._stage(installed, trail, phase, "blocked", reason, began)
                    return None
                case Allow(instead, note):
                    if instead is not None and not isinstance(instead, Request):
                        message = replace(message, params=instead)
                    if note or instead is not None:
                        self._stage(installed, trail, phase, _outcome(verdict), note, began)
        return message.params

    def on_tools(self, server: str, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The definitions that exist here. Raises PluginFailed when a critical plugin raises."""
        for installed in self.for_server(server):
            if not isinstance(installed.plugin, MiddlewarePlugin):
                continue
            try:
                tools = _checked_tools(installed.plugin.on_tools(server, tools))
            except Exception:
                log.exception("plugin %s failed on the tools of %s", installed.handler, server)
                if installed.critical:
                    raise PluginFailed(f"The plugin {installed.handler} failed on the tools of {server}.") from None
        return tools

    def may_redirect(self, server: str) -> bool:
        """True if a plugin may send a call to another tool than the one that was asked for, or answer in its place."""
        return any(_handles_requests(installed.plugin) for installed in self.for_server(server))

    def tool_patterns(self, server: str) -> Iterator[tuple[str, Sequence[str]]]:
        """Yields for each plugin of *server* its place and the patterns by which it names tools."""
        for installed in self._by_server.get(server, ()):
            if isinstance(installed.plugin, MiddlewarePlugin):
                yield f"plugins.middleware.{server}.{installed.handler}", installed.plugin.tool_patterns()

    def _failed(self, installed: Installed, trail: list[Stage], phase: Phase, began: float) -> None:
        log.exception("plugin %s failed on a %s", installed.handler, phase)
        self._stage(installed, trail, phase, "failed", "", began)
        if installed.critical:
            if phase == "request":
                raise PluginFailed("Request processing error: nothing was run.") from None
            raise PluginFailed("Response filtering failed.") from None

    def _stage(
        self,
        installed: Installed,
        trail: list[Stage],
        phase: Phase,
        outcome: StageOutcome,
        note: str,
        began: float,
    ) -> None:
        trail.append(Stage(installed.handler, phase, outcome, note[:_MAX_NOTE], self._now() - began))


def _outcome(verdict: Allow | Continue) -> StageOutcome:
    if verdict.instead is not None:
        return "modified"
    return "allowed" if isinstance(verdict, Allow) else "continued"


def _as_result(refused: UpstreamRefused) -> Mapping[str, Any]:
    """A server's own error as a result that says the same."""
    result = {"content": [{"type": "text", "text": refused.refusal}], "isError": True}
    return result if refused.data is None else {**result, "structuredContent": refused.data}


def _refused_as(shown: Mapping[str, Any], refused: UpstreamRefused) -> UpstreamRefused:
    """The error with the words that the plugins left of it."""
    content = shown.get("content")
    first = content[0] if isinstance(content, list | tuple) and content else None
    text = first.get("text") if isinstance(first, Mapping) else None
    other = UpstreamRefused(
        refused.message,
        code=refused.upstream_code,
        refusal=text if isinstance(text, str) else "",
        data=shown.get("structuredContent"),
        name=refused.name,
        status=refused.status,
    )
    other.path = refused.path
    return other


class ContractViolation(Exception):
    """A plugin returned what its kind may not. The text is for the log."""


def _handles_requests(plugin: Plugin) -> bool:
    base = MiddlewarePlugin if isinstance(plugin, MiddlewarePlugin) else SecurityPlugin
    return type(plugin).on_request is not base.on_request


def _checked(
    kind: str, verdict: object, request: Request, result: Result | None
) -> Allow | Block | Continue | Complete:
    """*verdict*, if this kind of plugin may give it on *request*, or on its *result*. Raises ContractViolation."""
    # The verdict must be one of its kind of plugin, with a readable note.
    match kind, verdict:
        case "security", Allow() | Block():
            pass
        case "middleware", Continue():
            pass
        case "middleware", Complete() if result is None:
            pass
        case _:
            raise ContractViolation(f"{type(verdict).__name__} is no verdict of a {kind} plugin")
    assert isinstance(verdict, Allow | Block | Continue | Complete)
    note = verdict.reason if isinstance(verdict, Block) else verdict.note
    if not isinstance(note, str):
        raise ContractViolation("a reason or note must be a text")
    # Anything that it puts in the place of a request or result must be one.
    match verdict:
        case Complete(result=instead):
            _check_result(instead, request, None)
        case Allow(instead) | Continue(instead) if instead is not None:
            if result is None:
                _check_request(instead, request)
            else:
                _check_result(instead, request, result)
    return verdict


def _checked_words(verdict: object) -> Allow | Block:
    """*verdict*, if it is one on a message. Raises ContractViolation."""
    match verdict:
        case Block(reason=str()):
            return verdict
        case Allow(instead, str()) if instead is None or (
            isinstance(instead, Mapping) and not isinstance(instead, Request)
        ):
            return verdict
    raise ContractViolation("a message is allowed, with other parameters if need be, or blocked")


def _checked_tools(tools: object) -> Sequence[Mapping[str, Any]]:
    """*tools*, if they are such a list. Raises ContractViolation."""
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ContractViolation("on_tools must return a sequence of definitions")
    return tools


def _check_result(instead: object, request: Request, seen: Result | None) -> None:
    if not isinstance(instead, Mapping):
        raise ContractViolation("a result must be an object")
    # What a server left out a plugin need not add.
    if request.method == "tools/call" and not _has_content(instead) and (seen is None or _has_content(seen)):
        raise ContractViolation("the content of a result must be a list of content blocks")


def _has_content(result: Result) -> bool:
    content = result.get("content")
    return isinstance(content, list | tuple) and all(map(_is_block, content))


def _is_block(block: object) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("type"), str)


def _check_request(instead: object, request: Request) -> None:
    if not isinstance(instead, Request):
        raise ContractViolation("what takes the place of a request must be one")
    if (instead.id, instead.method, instead.identity) != (request.id, request.method, request.identity):
        raise ContractViolation("the id, method and identity of a request cannot be changed")
    if not (isinstance(instead.server, str) and isinstance(instead.name, str)):
        raise ContractViolation("the server and name of a request must be texts")
    if not instead.name:
        raise ContractViolation("the name of a request must not be empty")
    if not isinstance(instead.arguments, Mapping):
        raise ContractViolation("arguments must be an object")

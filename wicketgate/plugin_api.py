"""The interface that plugins of third parties build against, version 1 (ROUTE-19).

A plugin sees clean names (the server's own, no namespace), may look at and change a call on its way to the server and
its result on the way back, and never reaches the wire. Three kinds, each with verdicts of its own:

- security: every call gets an explicit ``Allow`` or ``Block``; nothing else counts as a decision.
- middleware: ``Continue``, or ``Complete`` with a result of its own; it decides nothing about permission.
- auditing: receives a record of every call when it is over (``wicketgate/gateway/audit.py``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from wicketgate.access.identity import Identity
from wicketgate.catalog.selectable import UPSTREAM_NAME_KEY as UPSTREAM_NAME_KEY

API_VERSION = 1
"""The version; it grows when a plugin written for an older interface can no longer work."""

Result = Mapping[str, Any]
"""A result as MCP wire JSON: ``{"content": [...], "structuredContent"?, "isError"?}`` for ``tools/call``."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call as plugins see it. *id* and *method* are fixed: a plugin that changes one fails the call.

    *method* is ``tools/call``, ``resources/read``, ``prompts/get`` or ``completion/complete``; *name* is the tool's own
    name, the resource's URI or the prompt's name; *server* is the configured name of the upstream. All three of these
    may be redirected.
    """

    id: str
    method: str
    server: str
    name: str
    arguments: Mapping[str, Any]
    identity: Identity


@dataclass(frozen=True, slots=True)
class Message:
    """Words that pass while a call runs. *to* the client: progress (``notifications/progress``: ``message``), a log
    message (``notifications/message``: ``data``, ``logger``), a question (``elicitation/create``, its parameters), or a
    request for its model or folders (``sampling/createMessage``, ``roots/list``, their parameters). *to* the server: a
    person's answer to a question (``elicitation/create``, its content), the model's answer, or the folders."""

    method: str
    params: Mapping[str, Any]
    to: Literal["client", "server"]


@dataclass(frozen=True, slots=True)
class Allow:
    """A security plugin lets it pass; *instead*, if given, replaces what it saw. *note* goes to the audit
    record: what was found, never the text itself."""

    instead: Request | Result | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Block:
    """A security plugin refuses. *reason* is shown to the caller: say what was found, never the text itself."""

    reason: str


@dataclass(frozen=True, slots=True)
class Continue:
    """Middleware is done; *instead*, if given, replaces what it saw."""

    instead: Request | Result | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Complete:
    """Middleware answers by itself: the server is not called. Only for requests."""

    result: Result
    note: str = ""


ALLOW = Allow()
CONTINUE = Continue()


class PluginConfig(BaseModel):
    """The base of a plugin's configuration: unknown keys are errors that name their path."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class _Plugin:
    """The base of both kinds; made with one argument, an instance of its ``Config``."""

    api_version: ClassVar[int] = API_VERSION
    per_server: ClassVar[bool] = False
    """True if it makes sense only for one server, not for all (``_global``)."""
    Config: ClassVar[type[PluginConfig]] = PluginConfig

    def __init__(self, config: Any) -> None:
        self.config = config


class SecurityPlugin(_Plugin):
    """Base of security plugins.

    ``on_request`` is awaited before the server is called, ``on_result`` before the result is shown. A plugin that
    raises fails the call, unless the plugin is configured with ``critical: false``.
    """

    kind: ClassVar = "security"

    async def on_request(self, request: Request) -> Allow | Block:
        return ALLOW

    async def on_result(self, request: Request, result: Result) -> Allow | Block:
        return ALLOW

    async def on_message(self, request: Request, message: Message) -> Allow | Block:
        """Awaited for words that pass while the call *request* runs. ``Allow(instead=...)`` gives other ``params``.
        What is blocked does not pass: a question is cancelled, progress comes without its text."""
        return ALLOW


class MiddlewarePlugin(_Plugin):
    """Base of middleware plugins."""

    kind: ClassVar = "middleware"

    async def on_request(self, request: Request) -> Continue | Complete:
        return CONTINUE

    async def on_result(self, request: Request, result: Result) -> Continue:
        return CONTINUE

    def on_tools(self, server: str, tools: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
        """The definitions of the tools of *server* that exist here. Called at each refresh, off the event loop, with
        definitions as MCP wire JSON that must not be changed in place.

        A tool that is given another ``name`` keeps its own under ``_meta[UPSTREAM_NAME_KEY]``.
        """
        return tools

    def tool_patterns(self) -> Sequence[str]:
        """The names of tools in the configuration, as the server spells them, ``*`` allowed. Those that match no tool
        are reported to the operator."""
        return ()


Plugin = SecurityPlugin | MiddlewarePlugin

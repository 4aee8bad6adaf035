"""An upstream without a wire: tools and their answers from this program (S1 "Wiring a gateway over stdio")."""

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from wicketgate.ports import CallContext, UpstreamStatus

Handler = Callable[[str, Mapping[str, Any], CallContext], Awaitable[Mapping[str, Any]]]


class StubUpstream:
    """Answers from *handler*; without one, every call is an error result. Keeps the calls that arrived.

    *tools* are definitions of ``tools/list`` in wire JSON. With a *name*, that is the namespace of all of them;
    without, the tools' own names give their namespaces.
    """

    def __init__(
        self,
        tools: Sequence[Mapping[str, Any]],
        handler: Handler | None = None,
        *,
        name: str = "",
    ) -> None:
        self.tools = list(tools)
        self.calls: list[tuple[str, Mapping[str, Any], CallContext]] = []
        self.status = UpstreamStatus("ready")
        self._name = name
        self._handler = handler

    @property
    def name(self) -> str:
        return self._name

    async def supervise(self, changed: Callable[[str], None]) -> None:
        changed(self._name)
        await asyncio.Event().wait()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        return copy.deepcopy(self.tools)

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        self.calls.append((name, dict(arguments), context))
        if self._handler is None:
            return {"content": [{"type": "text", "text": "the stub has no handler"}], "isError": True}
        return await self._handler(name, arguments, context)

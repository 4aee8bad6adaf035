"""This program as a contestant: the gateway face over the runtime, in cache-stable order like its peer."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bench.contest import Refused
from wicketgate.access.identity import Identity
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.surface import SurfaceResult
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.tokens import shipped_token_counter
from wicketgate.upstreams.embedded import StubUpstream

_TOKENS = shipped_token_counter()
_CALLER = Identity("bench", ("tools:*",))


class Wicketgate:
    remarks = ("exact cl100k_base counts; cards, clusters and index are built at refresh",)

    def __init__(self) -> None:
        self._upstream = _Given()
        self._runtime = ProxyRuntime(
            self._upstream,
            RuntimeOptions(RuntimePolicies(inferred=[self._upstream.name])),
            cache_stable=True,
        )
        self._face = GatewayFace(self._runtime)

    async def refresh(self, definitions: list[dict[str, Any]]) -> int:
        self._upstream.definitions = definitions
        try:
            return (await self._runtime.refresh_catalog()).tools
        finally:
            self._upstream.definitions = []

    async def browse(self, arguments: Mapping[str, Any], session: str) -> SurfaceResult:
        result = await self._face.call("tool_browse", arguments, CallContext(_CALLER, "bench", session))
        if result.is_error:
            raise Refused
        return result

    def cards(self, answer: SurfaceResult) -> Sequence[Mapping[str, Any]]:
        cards: Sequence[Mapping[str, Any]] = (answer.structured or {})["cards"]
        return cards

    def path_of(self, card: Mapping[str, Any]) -> str:
        return str(card["id"])


contestant: Callable[[], Wicketgate] = Wicketgate


class _Given(StubUpstream):
    """Hands over the definitions that it was given, without a copy: they are fresh from JSON already."""

    def __init__(self) -> None:
        super().__init__([], name="all")
        self.status = UpstreamStatus("ready")
        self.definitions: list[dict[str, Any]] = []

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        return self.definitions

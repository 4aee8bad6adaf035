"""What a server has besides tools, behind the same places, breaker and deadlines as its tools (W-ISOLATION)."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from wicketgate.errors import UpstreamTimeout
from wicketgate.fleet.features import FeatureChange, FeatureKind, Features, FeatureSupport
from wicketgate.ports import CallContext


class Guard(Protocol):
    """As ``Member.guarded``."""

    async def __call__(
        self, actor: str, timeout_s: float, run: Callable[[float], Awaitable[Mapping[str, Any]]]
    ) -> Mapping[str, Any]: ...


class GuardedFeatures:
    """Implements Features. Lists are the gateway's own questions: they take no place of a caller's, and end within
    *listing_s*."""

    def __init__(self, name: str, features: Features, guard: Guard, listing_s: Callable[[], float]) -> None:
        self._name = name
        self._features = features
        self._guard = guard
        self._listing_s = listing_s

    @property
    def support(self) -> FeatureSupport | None:
        return self._features.support

    async def list_all(self, kind: FeatureKind) -> Sequence[Any]:
        listing_s = self._listing_s()
        try:
            async with asyncio.timeout(listing_s) as deadline:
                return await self._features.list_all(kind)
        except TimeoutError:
            if not deadline.expired():
                raise
            raise UpstreamTimeout(f"{self._name} did not give all its {kind} within {listing_s:g} s.") from None

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """Raises as ``Member.call_tool``."""
        run = partial(self._features.request, method, params, context)
        return await self._guard(context.identity.actor, timeout_s, run)

    def follow(self, uris: frozenset[str]) -> None:
        self._features.follow(uris)

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self._features.watch(heard)

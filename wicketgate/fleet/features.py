"""Offers of a tool server besides tools: resources, templates of resources, prompts, completions (S2 "Broadcast
Methods"). The port, its guarded form, and the kinds of change."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

from wicketgate.errors import UpstreamTimeout
from wicketgate.ports import CallContext

FeatureKind = Literal["resources", "templates", "prompts"]

ADDRESS: Mapping[FeatureKind, str] = {"resources": "uri", "templates": "uriTemplate", "prompts": "name"}
"""The field by which an item of each kind is asked for."""


@dataclass(frozen=True, slots=True)
class FeatureSupport:
    """The features that one server declared when it was connected; *instructions* are its own words for a model."""

    resources: bool = False
    prompts: bool = False
    completions: bool = False
    subscriptions: bool = False
    instructions: str = ""

    def has(self, kind: FeatureKind) -> bool:
        return self.prompts if kind == "prompts" else self.resources


@dataclass(frozen=True, slots=True)
class ListChanged:
    """*kind* ``resources`` stands for templates too."""

    kind: Literal["resources", "prompts"]


@dataclass(frozen=True, slots=True)
class ResourceChanged:
    uri: str


FeatureChange = ListChanged | ResourceChanged


class Features(Protocol):
    """The features of one tool server, under its own names."""

    @property
    def support(self) -> FeatureSupport | None:
        """None while it is not connected."""
        ...

    async def list_all(self, kind: FeatureKind) -> Sequence[Any]:
        """All items as they came, pages followed; no items where the server has no such list after all.

        Raises UpstreamUnavailable, UpstreamTimeout or UpstreamError.
        """
        ...

    async def request(
        self, method: str, params: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """``resources/read``, ``prompts/get`` or ``completion/complete``; the result as wire JSON. Raises as
        ``Upstream.call_tool``."""
        ...

    def follow(self, uris: frozenset[str]) -> None:
        """Hear of changes of these resources from now on, and of no others; also after a reconnection."""
        ...

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        """Call *heard* on the event loop whenever something changed; also after each connection."""
        ...


@runtime_checkable
class HasFeatures(Protocol):
    """An upstream that may have more than tools."""

    @property
    def features(self) -> Features: ...


Guard = Callable[[CallContext, float, Callable[[float], Awaitable[Mapping[str, Any]]]], Awaitable[Mapping[str, Any]]]
"""As ``Member.guarded``."""


class GuardedFeatures:
    """Implements Features behind the same places, breaker and deadlines as the tools (W-ISOLATION).

    Lists are the gateway's own questions: they take no place of a caller's, and end within *listing_s*.
    """

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
        return await self._guard(context, timeout_s, run)

    def follow(self, uris: frozenset[str]) -> None:
        self._features.follow(uris)

    def watch(self, heard: Callable[[FeatureChange], None]) -> None:
        self._features.watch(heard)

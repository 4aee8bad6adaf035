"""What a tool server may offer besides tools: resources, templates of resources, prompts, completions (S2 "Broadcast
Methods"). The port, and the words for what changed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from wicketgate.ports import CallContext

FeatureKind = Literal["resources", "templates", "prompts"]

ADDRESS: Mapping[FeatureKind, str] = {"resources": "uri", "templates": "uriTemplate", "prompts": "name"}
"""The field by which an item of each kind is asked for."""


@dataclass(frozen=True, slots=True)
class FeatureSupport:
    """What one server declared when it was connected; *instructions* are its own words for a model."""

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

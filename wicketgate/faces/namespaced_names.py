"""What tools are called in the namespaced face: ``server__tool``, or a short alias where no model could say that (S2,
gatekit G130)."""

import hashlib
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId
from wicketgate.faces.routing import join_name

SPEAKABLE = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What model APIs take as the name of a tool."""

_MAX_CHARS = 64
_DIGEST_CHARS = 8


class ToolNames:
    """Of one catalog: which tool a name means, and the name that is shown. Two tools of one name: the first by id."""

    def __init__(self, items: Iterable[SelectableItem]) -> None:
        targets: dict[tuple[str, str], ToolId] = {}
        shown: dict[ToolId, str] = {}
        aliases: dict[str, tuple[str, str]] = {}
        self.unreachable: list[ToolId] = []
        for item in sorted(items, key=lambda item: item.id):
            target = (item.server, item.listed_name)
            if target in targets:
                self.unreachable.append(item.id)
                continue
            targets[target] = item.id
            full = join_name(*target)
            shown[item.id] = alias = speakable_name(full)
            if alias != full:
                aliases[alias] = target
        self.targets: Mapping[tuple[str, str], ToolId] = MappingProxyType(targets)
        self.shown: Mapping[ToolId, str] = MappingProxyType(shown)
        self.aliases: Mapping[str, tuple[str, str]] = MappingProxyType(aliases)
        self.servers = frozenset(server for server, _ in targets)


def speakable_name(full: str) -> str:
    """*full* itself if models can say it; else what can be kept of it, and a digest that tells it from all others."""
    if SPEAKABLE.fullmatch(full):
        return full
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST_CHARS]
    kept = re.sub(r"[^a-zA-Z0-9_-]+", "_", full)[: _MAX_CHARS - _DIGEST_CHARS - 1]
    return f"{kept}_{digest}"

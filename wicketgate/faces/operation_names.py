"""Tools as operations: ``/namespace/name``, the spelling of the registry face (S4 §4)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import parse_tool_id


@dataclass(frozen=True, slots=True)
class Operation:
    """*text* is what a search looks into: name and description, without regard to case."""

    name: str
    item: SelectableItem
    text: str


class OperationIndex:
    """The operations of one catalog; *by_name* is in the order of names."""

    def __init__(self, items: Mapping[str, SelectableItem]) -> None:
        names = _names(items)
        self.by_name = {
            name: Operation(name, items[tool_id], f"{name} {items[tool_id].description}".casefold())
            for tool_id, name in sorted(names.items(), key=lambda pair: pair[1])
        }
        self.name_of = names

    def get(self, name: str) -> Operation | None:
        """By name, with or without the leading slash (alknet A16, A23)."""
        return self.by_name.get(name if name.startswith("/") else f"/{name}")


def _names(items: Mapping[str, SelectableItem]) -> dict[str, str]:
    """Names by tool id. Several versions of one tool keep what tells them apart, so that each stays reachable."""
    plain = {tool_id: f"/{item.namespace}/{item.name}" for tool_id, item in items.items()}
    count = Counter(plain.values())
    return {tool_id: name if count[name] == 1 else name + _suffix(tool_id) for tool_id, name in plain.items()}


def _suffix(tool_id: str) -> str:
    parts = parse_tool_id(tool_id)
    version = f"@{parts.version}" if parts.version else ""
    return version + (f"#{parts.hash8}" if parts.hash8 else "")

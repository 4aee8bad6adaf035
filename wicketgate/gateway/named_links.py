"""Resources that results named by a link, so that the actor who got a link may read it through its server (EXEC-81).

Kept in memory, so a link is known to the process that gave it: the newest of each actor, and the actors used last.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId

_MAX_ACTORS = 500
_MAX_OF_ACTOR = 100
_MAX_URI_CHARS = 1_024
_FACT = "link: "


class NamedLink(NamedTuple):
    """The address of a resource, its server, and the tool whose result named it."""

    uri: str
    server: str
    tool_id: ToolId


class NamedLinks:
    def __init__(self) -> None:
        self._links: OrderedDict[str, OrderedDict[str, NamedLink]] = OrderedDict()

    def note(self, actor: str, item: SelectableItem, result: Mapping[str, Any]) -> None:
        """Keeps the links of *result*, at most a hundred of an actor."""
        content = result.get("content")
        for block in content[:_MAX_OF_ACTOR] if isinstance(content, list) else ():
            match block:
                case {"type": "resource_link", "uri": str(uri)} if len(uri) <= _MAX_URI_CHARS:
                    own = self._links.setdefault(actor, OrderedDict())
                    own[uri] = NamedLink(uri, item.server, item.id)
                    own.move_to_end(uri)
                    self._links.move_to_end(actor)
                    if len(own) > _MAX_OF_ACTOR:
                        own.popitem(last=False)
        if len(self._links) > _MAX_ACTORS:
            self._links.popitem(last=False)

    def find(self, actor: str, wanted: str) -> NamedLink | None:
        """Returns the link that *wanted* names: its URI, or the fact of an envelope that shows it."""
        own: Mapping[str, NamedLink] = self._links.get(actor, {})
        parts = (wanted, *wanted[: 4 * _MAX_URI_CHARS].removeprefix(_FACT).split(" | "))
        return next((own[part] for part in parts if part in own), None)

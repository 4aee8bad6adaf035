"""One tool as the catalog knows it, read from an MCP definition (CARD-10 to CARD-13); a skill too (CARD-41)."""

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from wicketgate.catalog.definition_change import canonical, definition_digest
from wicketgate.catalog.tool_id import ToolId, ToolNames, derive_tool_id, namespace_of, parse_tool_id, tool_names
from wicketgate.errors import CatalogError
from wicketgate.log_text import MASK

OperationKind = Literal["query", "mutation", "subscription"]
"""A query changes nothing, a mutation may; a subscription answers many times, which no tool call can carry
(CARD-18)."""


UPSTREAM_NAME_KEY = "wicketgate/upstream_name"
"""The key in ``_meta`` that keeps the server's own name for a tool that a plugin renamed."""

SOURCE_KEY = "wicketgate/source"
"""The key in ``_meta`` that keeps the digest of the server's own definition of a tool that a plugin changed."""


@dataclass(frozen=True, slots=True)
class SelectableItem:
    """One tool that can be browsed and run. The mappings are the upstream's own and are never changed.

    *name* is the id's name part; *server* and *upstream_name* are the target of a call and the name of the tool
    there; *listed_name* is the name in its definition, which a plugin may have changed. *operation*,
    *side_effects*, *cost_hint* and the tags are the server's word, never a reason to allow anything.

    *home* is the namespace of the upstream, empty if that has no name. *digest* is that of the definition, as the
    upstream declared it and as it is shown (ACCESS-52). *spellings* are what its server calls
    itself. *definition* is the whole definition as it is shown, empty for an item made by hand. *names* follows from
    the other fields.
    """

    id: ToolId
    kind: Literal["tool", "skill"]
    name: str
    description: str
    namespace: str
    tags: tuple[str, ...] = ()
    args_schema: Mapping[str, Any] = field(default_factory=dict)
    output_schema: Mapping[str, Any] | None = None
    operation: OperationKind = "mutation"
    side_effects: bool = True
    cost_hint: float = 0.0
    server: str = ""
    upstream_name: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    listed_name: str = ""
    title: str | None = None
    home: str = ""
    digest: str = ""
    spellings: tuple[str, ...] = ()
    definition: Mapping[str, Any] = field(default_factory=dict, repr=False)
    names: ToolNames = field(init=False, compare=False, repr=False, default=())

    def __post_init__(self) -> None:
        names = tool_names(self.namespace, self.name, self.listed_name, self.upstream_name, home=self.home)
        object.__setattr__(self, "names", names)

    @property
    def app_only(self) -> bool:
        """True for a tool that its server keeps from models (``_meta.ui.visibility`` without ``model``)."""
        if self.kind != "tool":
            return False
        ui = (self.definition.get("_meta") or {}).get("ui")
        visibility = ui.get("visibility") if isinstance(ui, Mapping) else None
        return isinstance(visibility, list) and "model" not in visibility


def mcp_tool_to_selectable(
    tool: Mapping[str, Any],
    server: str | None = None,
    *,
    infer: bool = False,
    named: bool = True,
    digest: str | None = None,
) -> SelectableItem:
    """Read one definition of ``tools/list``, in wire JSON.

    *server* is the configured name of the upstream and its namespace; without it, or with *infer*, the tool's own
    name gives the namespace. Not *named*: *server* was not configured, so no rule goes by it. *digest* is that of the
    whole definition as ``compact_json``, if known. Raises CatalogError with a reason that names the field when the
    definition is not well formed. A description may be absent (MCP), and a hint that makes no sense is ignored.
    """
    # Check the parts that the catalog needs.
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        raise CatalogError("name: a tool needs a name that is not blank")
    if MASK in name:  # under another name it would escape the rules for its own
        raise CatalogError("name: it holds a credential of the gate for this upstream")
    description = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise CatalogError("description: not a string")
    args_schema = _object(tool, "inputSchema") or {}
    _object(args_schema, "properties", "inputSchema.properties")
    meta = _object(tool, "_meta") or {}
    annotations = _object(tool, "annotations") or {}
    # The id, then the tags, which repeat hints of the server.
    tool_id = derive_tool_id(name, args_schema, _version(meta), None if infer else server)
    parts = parse_tool_id(tool_id)
    read_only = annotations.get("readOnlyHint") is True
    tags = {"mcp"}
    if read_only:
        tags.add("read-only")
    if annotations.get("destructiveHint") is True:
        tags.add("destructive")
    own_name = own if isinstance(own := meta.get(UPSTREAM_NAME_KEY), str) else name
    return SelectableItem(
        id=tool_id,
        kind="tool",
        name=parts.name,
        description=description or "",
        namespace=sys.intern(parts.namespace),  # one text for all tools of a namespace
        tags=tuple(sorted(tags)),
        args_schema=args_schema,
        output_schema=_object(tool, "outputSchema"),
        operation=_operation(meta, read_only),
        side_effects=not read_only,
        cost_hint=_cost(annotations.get("costHint")),
        server=parts.namespace if server is None else server,
        upstream_name=own_name,
        metadata={key: value for key, value in annotations.items() if key not in _MAPPED_ANNOTATIONS},
        listed_name=name,
        title=title if isinstance(title := tool.get("title"), str) else None,
        home=namespace_of(server) if server is not None and named else "",
        digest=origin_digest(tool, server or "", own_name, meta.get(SOURCE_KEY), digest),
        definition=tool,
    )


def shown_annotations(item: SelectableItem) -> dict[str, Any]:
    """The hints of the server as it gave them, a false one too: absent, it means another thing. One that is neither
    true nor false is left out."""
    if not item.definition:
        return {**item.metadata, **_hints_of_tags(item)}
    annotations = item.definition.get("annotations") or {}
    return {key: value for key, value in annotations.items() if key not in _BOOLEAN or isinstance(value, bool)}


def other_fields(item: SelectableItem) -> dict[str, Any]:
    """The fields of the definition that an item has no other place for, such as ``icons`` and ``_meta``, as the server
    gave them; nothing of our own."""
    fields = {key: value for key, value in item.definition.items() if key not in _PLACED}
    meta = fields.pop("_meta", None) or {}
    if theirs := {key: value for key, value in meta.items() if not key.startswith(_OURS)}:
        fields["_meta"] = theirs
    return fields


def _hints_of_tags(item: SelectableItem) -> dict[str, Any]:
    hints = {"readOnlyHint": not item.side_effects, "destructiveHint": "destructive" in item.tags}
    return {key: True for key, value in hints.items() if value}


_PLACED = frozenset({"name", "title", "description", "inputSchema", "outputSchema", "annotations"})
_BOOLEAN = frozenset({"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"})
_OURS = "wicketgate/"


OPERATION_KEY = "wicketgate/operation"
"""In ``_meta`` of a definition: ``subscription``, where the annotations cannot say it."""

_MAPPED_ANNOTATIONS = frozenset({"readOnlyHint", "destructiveHint", "costHint"})

# Longer numbers are not versions, and Python refuses to print the longest of them.
_MAX_VERSION_NUMBER = 10**32


def origin_digest(
    tool: Mapping[str, Any], server: str, own_name: str, source: object = None, whole: str | None = None
) -> str:
    """SHA-256, in hex, over the upstream's name, the tool's name there, and the definition: as it is shown, and as the
    upstream declared it if a plugin changed it."""
    try:
        shown = definition_digest(tool, whole)
    except ValueError:
        raise CatalogError("definition: not JSON") from None
    origin = canonical([server, own_name, source if isinstance(source, str) else shown, shown])
    return hashlib.sha256(origin.encode("ascii")).hexdigest()


def _object(holder: Mapping[str, Any], key: str, label: str = "") -> Mapping[str, Any] | None:
    value = holder.get(key)
    if value is not None and not isinstance(value, Mapping):
        raise CatalogError(f"{label or key}: not an object")
    return value


def _version(meta: Mapping[str, Any]) -> str | None:
    """Returns ``_meta.version`` as text. Numbers are taken as servers write them; any other value is not a version."""
    version = meta.get("version")
    if isinstance(version, bool) or not isinstance(version, str | int | float):
        return None
    if isinstance(version, int) and abs(version) >= _MAX_VERSION_NUMBER:
        return None
    return str(version).strip() or None


def _operation(meta: Mapping[str, Any], read_only: bool) -> OperationKind:
    if meta.get(OPERATION_KEY) == "subscription":
        return "subscription"
    return "query" if read_only else "mutation"


def _cost(hint: object) -> float:
    """Returns a finite cost above zero; any other hint costs nothing."""
    if isinstance(hint, bool) or not isinstance(hint, int | float) or not 0 < hint <= sys.float_info.max:
        return 0.0
    return float(hint)

"""Names of the suite's fixtures and names of a face, both ways.

The suite calls ``test_simple_text`` and reads ``test://static-text``. Behind a face the one is
``conf__test_simple_text``, or an argument of ``tool_execute``; the other is ``conf+test://static-text``.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

Message = Mapping[str, Any]

# What each face with meta-tools runs another tool by: the meta-tool, where it takes the name and where the arguments.
_META_TOOLS = {
    "gateway": ("tool_execute", "tool_id", "args", "{server}:{name}"),
    "transparent": ("tool_execute", "tool_id", "args", "{server}:{name}"),
    "registry": ("call", "operation", "input", "/{server}/{name}"),
}
_OWN_TOOLS = {
    "gateway": {"tool_browse", "tool_execute", "tool_view"},
    "transparent": {"tool_hydrate", "tool_execute"},
    "registry": {"search", "schema", "call", "batch"},
}
_BASE64 = re.compile(r"=\?base64\?(.*)\?=", re.IGNORECASE)


class Names:
    """Of one face. *server_of* says which server has the tool, the prompt or the URI of that name."""

    def __init__(self, face: str, server_of: Callable[[str], str], servers: frozenset[str]) -> None:
        self._face = face
        self._server_of = server_of
        self._uris = re.compile(rf"(?:ui://)?({'|'.join(sorted(servers))})(?:\+|/)(.*)", re.DOTALL)
        self._prefixes = tuple(f"{server}__" for server in sorted(servers))

    def request(self, message: Any) -> Any:
        """*message* of the suite as the face wants it; what is no request with a name stays as it is."""
        if not isinstance(message, dict) or not isinstance(message.get("params"), dict):
            return message
        params: dict[str, Any] = message["params"]
        if self._face == "namespaced":
            return {**message, "params": self._prefixed(message.get("method"), params)}
        name = params.get("name")
        if message.get("method") != "tools/call" or not isinstance(name, str) or name in _OWN_TOOLS[self._face]:
            return message
        meta_tool, name_key, arguments_key, form = _META_TOOLS[self._face]
        arguments: dict[str, Any] = {name_key: form.format(server=self._server_of(name), name=name)}
        if "arguments" in params:
            arguments[arguments_key] = params["arguments"]
        return {**message, "params": {**params, "name": meta_tool, "arguments": arguments}}

    def header(self, value: str, before: Any, after: Any) -> str:
        """``Mcp-Name`` for the changed message, if it fitted the one *before*: a header that is meant to be wrong stays
        so."""
        bare = value.strip()  # blanks around a value are no part of it, and have to be borne
        encoded = _BASE64.fullmatch(bare)
        try:
            said = b64decode(encoded[1], validate=True).decode() if encoded else bare
        except ValueError:
            return value
        if said != named(before):
            return value
        name = named(after) or ""
        return value.replace(bare, f"=?base64?{b64encode(name.encode()).decode()}?=" if encoded else name)

    def answer(self, message: Any) -> Any:
        """*message* of the face with the suite's names: of tools, prompts, resources, templates and links."""
        if self._face != "namespaced":
            return message
        return self._bare(message)

    def _prefixed(self, method: Any, params: dict[str, Any]) -> dict[str, Any]:
        changed = dict(params)
        if method in ("tools/call", "prompts/get") and isinstance(params.get("name"), str):
            changed["name"] = self._name(params["name"])
        of_uris = isinstance(method, str) and method.startswith(("resources/", "skills/"))
        if of_uris and isinstance(params.get("uri"), str):
            changed["uri"] = self._uri(params["uri"])
        if isinstance(ref := params.get("ref"), dict):
            if isinstance(ref.get("name"), str) and ref.get("type") == "ref/prompt":
                changed["ref"] = {**ref, "name": self._name(ref["name"])}
            if isinstance(ref.get("uri"), str):
                changed["ref"] = {**ref, "uri": self._uri(ref["uri"])}
        wanted = params.get("notifications")
        if isinstance(wanted, dict) and isinstance(uris := wanted.get("resourceSubscriptions"), list):
            uris = [self._uri(uri) if isinstance(uri, str) else uri for uri in uris]
            changed["notifications"] = {**wanted, "resourceSubscriptions": uris}
        return changed

    def _name(self, name: str) -> str:
        return f"{self._server_of(name)}__{name}"

    def _uri(self, uri: str) -> str:
        server = self._server_of(uri)
        return f"ui://{server}/{uri.removeprefix('ui://')}" if uri.startswith("ui://") else f"{server}+{uri}"

    def _bare(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: self._bare(part, name) for name, part in value.items()}
        if isinstance(value, list):
            return [self._bare(part, key) for part in value]
        if not isinstance(value, str):
            return value
        if key in ("uri", "uriTemplate", "resourceUri", "resourceSubscriptions"):
            if found := self._uris.fullmatch(value):
                return f"ui://{found[2]}" if value.startswith("ui://") else found[2]
            return value
        if key == "name":
            return next((value.removeprefix(prefix) for prefix in self._prefixes if value.startswith(prefix)), value)
        return value


def named(message: Any) -> str | None:
    """The part of a request that ``Mcp-Name`` repeats: its name, its URI or its task; None for one without."""
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict):
        return None
    return next((params[key] for key in ("name", "uri", "taskId") if isinstance(params.get(key), str)), None)

"""Makes the JSON Schema of the configuration file, for editors (OPS-68).

It is that of ``Settings`` with what only the file has: ``${VAR}`` in the place of any single value, and servers as MCP
clients write them. Descriptions are the texts below the fields. It keeps to draft 7 and needs no other document,
because editors know that draft best and may have no network.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from wicketgate.config.client_entries import MCP_SERVERS
from wicketgate.config.settings import Settings

TITLE = "Configuration of Wicketgate"

_UPSTREAM = "UpstreamSettings"
_CLIENT_ENTRY = "ClientEntry"
_KINDS = ("command", "url", "serverUrl", "httpUrl", "openapi", "python")
_VARIABLE = {"type": "string", "pattern": r"\$\{((file|cmd|keyring):[^}]+|(env:)?[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?)\}"}
_SCALARS = ("integer", "number", "boolean")

_OF_CLIENTS: dict[str, Any] = {
    "args": {
        "description": "The arguments of command, as MCP clients write them.",
        "type": "array",
        "items": {"type": "string"},
    },
    "type": {
        "description": "As MCP clients write it: stdio with command; http or sse with url.",
        "enum": ["stdio", "local", "http", "streamable-http", "streamableHttp", "streamable_http", "remote", "sse"],
    },
    "disabled": {"description": "As MCP clients write it: true is enabled: false.", "type": "boolean"},
    "serverUrl": {"description": "The url, as some MCP clients write it.", "type": "string"},
    "httpUrl": {"description": "The url, as some MCP clients write it.", "type": "string"},
}


def file_schema() -> dict[str, Any]:
    """Returns the schema, the same for the same version of the program."""
    schema = Settings.model_json_schema()
    sections = schema.pop("$defs")
    classes = {model.__name__: model for model in _sections(Settings)}
    for name, section in {**sections, "Settings": schema}.items():
        _describe(section, classes[name])
    _widen_upstreams(sections)
    schema["properties"]["upstreams"]["type"] = ["array", "null"]
    schema["properties"][MCP_SERVERS] = {
        "description": "Servers by name, as MCP clients write them. They stand beside those of upstreams.",
        "type": "object",
        "propertyNames": {"pattern": sections[_UPSTREAM]["properties"]["name"]["pattern"]},
        "additionalProperties": {"$ref": f"#/$defs/{_CLIENT_ENTRY}"},
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": TITLE,
        "description": "The file wicketgate.yaml. ${VAR} and ${VAR:-default} stand for environment variables.",
        **{key: _for_files(schema[key]) for key in ("type", "additionalProperties", "properties")},
        "definitions": {name: _for_files(section) for name, section in sorted(sections.items())},
    }


def _widen_upstreams(sections: dict[str, Any]) -> None:
    """Adds the words of clients, and an entry without a name, which stands below it."""
    upstream = sections[_UPSTREAM]
    properties = upstream["properties"]
    command, transport = properties["command"], properties["transport"]
    properties["command"] = {
        "description": command["description"],
        "anyOf": [
            {"type": "string", "pattern": r"\S"},
            {"type": "array", "items": command["items"], "minItems": 1},
        ],
    }
    transport["enum"] = _OF_CLIENTS["type"]["enum"]
    properties |= _OF_CLIENTS
    upstream["anyOf"] = [{"required": [kind]} for kind in _KINDS]
    remark = {"description": {"description": "A remark; it has no effect.", "type": "string"}}
    sections[_CLIENT_ENTRY] = {
        **upstream,
        "description": "One MCP server, as clients write it. All keys of an upstream may stand here too.",
        "properties": {**remark, **{key: value for key, value in properties.items() if key != "name"}},
        "required": [key for key in upstream["required"] if key != "name"],
    }


def _describe(section: dict[str, Any], model: type[BaseModel]) -> None:
    """Puts the texts of the class into its schema, in plain words, and takes out what is no setting."""
    if model.__doc__:
        section["description"] = _plain(model.__doc__)
    texts = _texts(model)
    for name, field in model.model_fields.items():
        if field.exclude:
            del section["properties"][name]
            continue
        part = section["properties"][name]
        part.pop("description", None)
        if text := texts.get(name):
            section["properties"][name] = {"description": _plain(text), **part}


def _for_files(node: Any) -> Any:
    """Returns *node* for the file: without titles, with ``${VAR}`` for single values, references as draft 7 reads
    them."""
    if isinstance(node, list):
        return [_for_files(part) for part in node]
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("properties"), dict):
        inner = {name: _for_files(part) for name, part in node["properties"].items()}
        rest = _for_files({key: value for key, value in node.items() if key not in ("properties", "title")})
        return {**rest, "properties": inner}
    made = {
        key: value if key in ("enum", "default", "propertyNames") else _for_files(value)
        for key, value in node.items()
        if key not in ("title", "format", "writeOnly")
        and not (key == "default" and (value in (None, "") or isinstance(value, dict | list)))
    }
    if reference := made.get("$ref"):
        made["$ref"] = reference.replace("#/$defs/", "#/definitions/")
        if len(made) > 1:  # what stands beside a reference is not read in draft 7
            made["allOf"] = [{"$ref": made.pop("$ref")}]
        return made
    checked = made.get("type") in _SCALARS or "enum" in made or "const" in made or "pattern" in made
    if checked:
        about = {key: made.pop(key) for key in ("description", "default") if key in made}
        return {**about, "anyOf": [made, dict(_VARIABLE)]}
    return made


def _sections(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yields *model* and every section below it."""
    yield model
    for field in model.model_fields.values():
        for inner in _models(field.annotation):
            yield from _sections(inner)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for each in getattr(annotation, "__args__", ()):
        yield from _models(each)


def _texts(model: type[BaseModel]) -> dict[str, str]:
    """Returns the text below each field, those of base classes too."""
    texts: dict[str, str] = {}
    for owner in reversed(model.__mro__):
        if not (isinstance(owner, type) and issubclass(owner, BaseModel)) or owner is BaseModel:
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            match field, text:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(said))):
                    texts[name] = said
    return texts


def _plain(text: str) -> str:
    """Returns a docstring as plain words in the spelling of YAML."""
    text = re.sub(r" \((?:``[\w/]+\.py``|[A-Z]+-\d+(?:, [A-Z]+-\d+)*)\)", "", " ".join(text.split()))
    text = re.sub(r", by kind(?=\.)", "", text)
    text = text.replace("``", "").replace("\\*", "*")
    text = re.sub(r"(?<![\w*])\*([a-z_]+)\*(?![\w*])", r"\1", text)
    for python, yaml in (("None", "null"), ("True", "true"), ("False", "false")):
        text = re.sub(rf"\b{python}\b", yaml, text)
    return text

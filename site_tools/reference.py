"""Writes the pages of the settings and of the HTTP API from the published documents in ``openapi/``."""

import html
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
_ALTERNATIVES = ("anyOf", "oneOf", "allOf")

_SETTINGS_HEAD = """# Every setting

Generated from [wicketgate.schema.json](wicketgate.schema.json), the JSON Schema of the configuration file. The page
[Configuration](../guide/configuration.md) explains the settings by section. `[]` marks the entries of a list, `.<name>`
the entries of a mapping. Every value may also be a variable: `${NAME}`.
"""
_HTTP_HEAD = """# HTTP API

Generated from [openapi.json](openapi.json), the OpenAPI document of a gate. Other guarantees are in the
[specification](../spec/index.md); `/mcp` speaks the [Model Context Protocol](../guide/mcp-clients.md) and is not
described here. Requests carry a key or token: `Authorization: Bearer ...`.
"""


def settings_page(document: Schema) -> str:
    """Returns a page with a table for each section of the configuration file."""
    lines = [_SETTINGS_HEAD]
    for name, value in document["properties"].items():
        lines += [f"## {name}\n", f"{value.get('description', '')}\n"]
        rows = list(_settings(name, value, document["definitions"]))
        lines += ["| setting | type | default | meaning |", "|---|---|---|---|", *rows, ""]
    return "\n".join(lines)


def http_page(document: Schema) -> str:
    """Returns a page with a section for each operation and each schema."""
    lines = [_HTTP_HEAD]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            lines += _operation(method, path, operation)
    lines.append("## Schemas\n")
    for name, schema in sorted(document["components"]["schemas"].items()):
        lines += [f"### {name}\n", *_schema(schema)]
    return "\n".join(lines)


def _settings(path: str, value: Schema, definitions: Schema) -> Iterator[str]:
    """Yields the rows of *path*: its own, or those of the settings inside it."""
    inner, suffix = _nested(value, definitions)
    if inner is None:
        default = f"`{_short(value['default'])}`" if "default" in value else ""
        kind = _cell(_type(_without_variable(value)))
        yield f"| `{_inside(path)}` | {kind} | {default} | {_prose(value.get('description', ''))} |"
        return
    if value.get("description") and "." in path:
        kind, default = (
            ("section", "")
            if "default" not in value
            else (_cell(_type(_without_variable(value))), _short(value["default"]))
        )
        yield f"| `{_inside(path)}{suffix}` | {kind} | {default and f'`{default}`'} | {_prose(value['description'])} |"
    for name, each in inner["properties"].items():
        yield from _settings(f"{path}{suffix}.{name}", each, definitions)


def _inside(path: str) -> str:
    """The path of a setting within its section, whose name is the heading."""
    return path.partition(".")[2] or path


def _nested(value: Schema, definitions: Schema) -> tuple[Schema | None, str]:
    """The object whose settings belong below *value*, with the mark of a list or mapping."""
    for key in _ALTERNATIVES:
        for each in value.get(key, ()):
            found = _nested(each, definitions)
            if found[0] is not None:
                return found
    if "$ref" in value:
        definition = definitions[_name(value)]
        return (definition, "") if "properties" in definition else (None, "")
    for key, suffix in (("items", "[]"), ("additionalProperties", ".<name>")):
        if isinstance(value.get(key), Mapping):
            inner, below = _nested(value[key], definitions)
            if inner is not None:
                return inner, suffix + below
    return None, ""


def _without_variable(value: Schema) -> Schema:
    """Leaves out the alternative that every setting has: a text with the name of a variable."""
    found = dict(value)
    for key in set(_ALTERNATIVES) & found.keys():
        kept = [each for each in found[key] if not str(each.get("pattern", "")).startswith(r"\$\{")]
        found[key] = [_without_variable(each) for each in kept]
    return found


def _operation(method: str, path: str, operation: Schema) -> list[str]:
    lines = [f"## {method.upper()} {path}\n", f"{operation.get('summary', '')}\n"]
    if operation.get("description"):
        lines.append(f"{operation['description']}\n")
    if parameters := operation.get("parameters"):
        lines += ["| parameter | in | type | required | meaning |", "|---|---|---|---|---|"]
        for each in parameters:
            needed = "yes" if each.get("required") else ""
            meaning = _prose(each.get("description", ""))
            lines.append(f"| `{each['name']}` | {each['in']} | {_cell(_type(each['schema']))} | {needed} | {meaning} |")
        lines.append("")
    if "requestBody" in operation:
        for kind, content in operation["requestBody"]["content"].items():
            schema = content["schema"]
            if "properties" in schema:
                lines += [f"Body (`{kind}`):\n", *_schema(schema)]
            else:
                lines.append(f"Body (`{kind}`): {_type(schema)}\n")
    lines += ["| status | meaning | body |", "|---|---|---|"]
    for status, response in operation["responses"].items():
        bodies = [f"`{kind}`: {_type(each.get('schema', {}))}" for kind, each in response.get("content", {}).items()]
        lines.append(f"| {status} | {_prose(response.get('description', ''))} | {_cell(', '.join(bodies))} |")
    return [*lines, ""]


def _schema(schema: Schema) -> list[str]:
    lines = [f"{schema['description']}\n"] if schema.get("description") else []
    if "properties" not in schema:
        return [*lines, f"{_type(schema)}\n"]
    lines += ["| field | type | required | meaning |", "|---|---|---|---|"]
    for name, each in schema["properties"].items():
        needed = "yes" if name in schema.get("required", ()) else ""
        lines.append(f"| `{name}` | {_cell(_type(each))} | {needed} | {_prose(each.get('description', ''))} |")
    return [*lines, ""]


def _type(schema: Schema) -> str:
    """Returns the type in a few words, with bounds and a link to a named schema."""
    if "$ref" in schema:
        name = _name(schema)
        return "section" if "definitions" in schema["$ref"] else f"[{name}](#{name.lower()})"
    for key in _ALTERNATIVES:
        if key in schema:
            return " or ".join(dict.fromkeys(_type(each) for each in schema[key]))
    if "const" in schema:
        return f"`{_short(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{_short(each)}`" for each in schema["enum"])
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(_type({**schema, "type": each}) for each in kind)
    if kind == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"mapping to {_type(schema['additionalProperties'])}"
    words = {"minimum": "from", "exclusiveMinimum": "above", "maximum": "to", "exclusiveMaximum": "below"}
    bounds = [f"{word} {schema[key]}" for key, word in words.items() if key in schema]
    return " ".join([str(kind), *bounds])


def _name(schema: Schema) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _short(value: object) -> str:
    return value if isinstance(value, str) and value else json.dumps(value)


def _prose(text: str) -> str:
    """A description as Markdown that shows it unchanged; only its code spans stay code."""
    parts = re.split(r"(`[^`]+`)", text)
    parts[::2] = [re.sub(r"([*_\[\]])", r"\\\1", html.escape(part, quote=False)) for part in parts[::2]]
    return _cell("".join(parts))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")

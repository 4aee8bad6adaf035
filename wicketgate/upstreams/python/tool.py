"""Makes a typed function a tool: its schema, its arguments in the declared types, its result (UP-34)."""

import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, TypeAdapter, ValidationError, create_model
from pydantic.fields import Field, FieldInfo
from pydantic.json_schema import GenerateJsonSchema

from wicketgate.catalog.selectable import OPERATION_KEY
from wicketgate.errors import ArgsInvalid
from wicketgate.results.envelope import shorten
from wicketgate.schemas.messages import MESSAGE_CHARS, json_path
from wicketgate.tools import Media, RegisteredTool, ToolContext
from wicketgate.upstreams.python.results import ToJson, to_json, to_mcp_result, wrapped_output

_MAX_ERRORS = 20
_ARGUMENTS = re.compile(r"(?:args|arguments|parameters|params)\s*:", re.IGNORECASE)
_ONE_OF_THEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^()]*\))?\s*:\s*(.*)")
_PARAM_FIELD = re.compile(r":param\s+(?:\S+\s+)?(\w+)\s*:\s*(.*)")
_OTHER_FIELD = re.compile(r":(?:type|returns?|rtype|raises?)\b[^:]*:")


class UnusableFunction(Exception):
    """No schema can be made of the function. The text names the tool and the reason, and may be shown."""


@dataclass(frozen=True, slots=True)
class PythonTool:
    """A function as a tool. *definition* is wire JSON. *on_loop*: the function is awaited; otherwise it blocks and runs
    in a thread."""

    definition: Mapping[str, Any]
    on_loop: bool
    streams: bool
    _function: Callable[..., Any]
    _arguments: type[BaseModel]
    _names: tuple[tuple[str, str, bool], ...]
    _context_name: str | None
    _to_json: ToJson

    def bind(self, arguments: Mapping[str, Any], context: ToolContext) -> Callable[[], Any]:
        """Returns the call with its arguments in the declared types. Raises ArgsInvalid with every error."""
        try:
            read = self._arguments.model_validate(dict(arguments))
        except ValidationError as error:
            raise _invalid(error) from None
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for name, attribute, by_place in self._names:
            if by_place:
                positional.append(getattr(read, attribute))
            else:
                named[name] = getattr(read, attribute)
        if self._context_name is not None:
            named[self._context_name] = context
        return functools.partial(self._function, *positional, **named)

    def result(self, value: Any) -> Mapping[str, Any]:
        """Raises any error of a serializer if *value* is not of the declared type."""
        return to_mcp_result(value, self._to_json)


def read_function(tool: RegisteredTool) -> PythonTool:
    """Raises UnusableFunction."""
    try:
        return _read(tool)
    except (NameError, TypeError, ValueError, PydanticUserError) as error:
        # The text names the class of the error alone. Its own words go to the log, as the cause.
        raise UnusableFunction(f"the tool {tool.name!r} has no usable signature ({type(error).__name__})") from error


def _read(tool: RegisteredTool) -> PythonTool:
    function = tool.function
    # The hints of a callable object or a partial are those of what it calls.
    inner = inspect.unwrap(function.func if isinstance(function, functools.partial) else function)
    hinted = inner if inspect.isroutine(inner) else type(inner).__call__
    hints = get_type_hints(hinted, include_extras=True)
    description, described = _read_docstring(inspect.getdoc(inner) or "" if inspect.isroutine(inner) else "")
    # The arguments, as the fields of a model.
    fields: dict[str, Any] = {}
    names: list[tuple[str, str, bool]] = []
    context_name = None
    for place, parameter in enumerate(inspect.signature(function).parameters.values()):
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise UnusableFunction(f"the tool {tool.name!r} takes *{parameter.name}; name each argument instead")
        annotation = hints.get(parameter.name, Any)
        if _is_context(annotation):
            if parameter.kind is parameter.POSITIONAL_ONLY:
                raise UnusableFunction(f"the tool {tool.name!r} takes its context by place; take it by name")
            context_name = parameter.name
            continue
        # The fields have other names, because an argument may be named like a method of a model.
        attribute = f"a{place}"
        names.append((parameter.name, attribute, parameter.kind is parameter.POSITIONAL_ONLY))
        fields[attribute] = _field(parameter, annotation, described.get(parameter.name))
    arguments = create_model("Arguments", __config__=ConfigDict(extra="forbid", protected_namespaces=()), **fields)
    # The definition. A generator streams, so its items are no output.
    streams = inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner)
    output_schema, serialize = (None, to_json) if streams else _output(hints.get("return", Any))
    definition: dict[str, Any] = {
        "name": tool.name,
        "description": description if tool.description is None else inspect.cleandoc(tool.description),
        "inputSchema": _without_title(arguments.model_json_schema(schema_generator=_Schema)),
    }
    if tool.title is not None:
        definition["title"] = tool.title
    if output_schema is not None:
        definition["outputSchema"] = output_schema
    if tool.hints:
        definition["annotations"] = dict(tool.hints)
    meta = {"version": tool.version} if tool.version is not None else {}
    if streams:
        meta[OPERATION_KEY] = "subscription"
    if meta:
        definition["_meta"] = meta
    on_loop = inspect.iscoroutinefunction(inner) or inspect.iscoroutinefunction(hinted)
    return PythonTool(definition, on_loop, streams, function, arguments, tuple(names), context_name, serialize)


def _read_docstring(text: str) -> tuple[str, dict[str, str]]:
    """Returns the description, and those of the arguments. *text* is as ``inspect.getdoc`` gives it.

    An ``Args:`` section and ``:param x:`` fields describe the arguments, and all lines outside of fields are the
    description.
    """
    description: list[str] = []
    arguments: dict[str, list[str]] = {}
    current: list[str] | None = description
    section_indent: int | None = None  # of the names in an Args section; 0 until the first one
    for line in text.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        # A line at the margin ends a section: it begins the next one, a field or more description.
        if stripped and indent == 0:
            section_indent = None
            if _ARGUMENTS.fullmatch(stripped):
                section_indent, current = 0, None
                continue
            if found := _PARAM_FIELD.fullmatch(stripped):
                current = arguments.setdefault(found.group(1), [])
                stripped = found.group(2)
            else:
                current = None if _OTHER_FIELD.match(stripped) else description
        # A line in the section that is not indented further names an argument.
        elif section_indent is not None and stripped and (section_indent == 0 or indent <= section_indent):
            found = _ONE_OF_THEM.fullmatch(stripped)
            section_indent = indent
            current = arguments.setdefault(found.group(1), []) if found else None
            stripped = found.group(2) if found else ""
        # Every other line continues what the lines before it describe.
        if current is description:
            description.append(line.rstrip())
        elif current is not None:
            current.append(stripped)
    described = {name: " ".join(" ".join(lines).split()) for name, lines in arguments.items()}
    return "\n".join(description).strip(), {name: words for name, words in described.items() if words}


class _Schema(GenerateJsonSchema):
    """Omits titles that repeat a field's name, and does not warn of defaults that JSON cannot hold."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012  # as its parent has it

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _field(parameter: inspect.Parameter, annotation: Any, words: str | None) -> Any:
    default = parameter.default
    options: dict[str, Any] = {}
    if isinstance(default, FieldInfo):  # limit: int = Field(10, ge=1)
        annotation = Annotated[annotation, default]
    elif default is not parameter.empty:
        options["default"] = default
    found = get_args(annotation)[1:] if get_origin(annotation) is Annotated else ()
    if words and not any(isinstance(part, FieldInfo) and part.description for part in found):
        options["description"] = words
    return annotation, Field(alias=parameter.name, **options)


def _is_context(annotation: Any) -> bool:
    if get_origin(annotation) in (Union, types.UnionType, Annotated):
        return any(_is_context(part) for part in get_args(annotation))
    return annotation is ToolContext


def _output(annotation: Any) -> tuple[Mapping[str, Any] | None, ToJson]:
    """Returns the output schema of the declared return type, and its serializer; no schema for content."""
    if annotation in (Any, None, type(None), object) or _is_content(annotation):
        return None, to_json
    adapter = TypeAdapter(annotation)

    def serialize(value: Any) -> Any:
        return to_json(adapter.dump_python(value, mode="json", by_alias=True, warnings=False))

    schema = adapter.json_schema(mode="serialization", schema_generator=_Schema)
    return wrapped_output(_without_title(schema)), serialize


def _is_content(annotation: Any) -> bool:
    """Returns whether values of this type are content: text, bytes and media, alone, in a list or in a union."""
    if get_origin(annotation) is Annotated:
        return _is_content(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return any(_is_content(part) for part in get_args(annotation))
    if get_origin(annotation) in (list, tuple):
        return any(_mentions_media(part) for part in get_args(annotation))
    return isinstance(annotation, type) and issubclass(annotation, str | bytes | bytearray | memoryview | Media)


def _mentions_media(annotation: Any) -> bool:
    return annotation is Media or any(map(_mentions_media, get_args(annotation)))


def _without_title(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "title"}


def _invalid(error: ValidationError) -> ArgsInvalid:
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    errors = [
        {"path": json_path(fault["loc"]), "message": _message(fault["type"], fault["msg"])}
        for fault in faults[:_MAX_ERRORS]
    ]
    first = f"The arguments do not fit. {errors[0]['path']}: {errors[0]['message']}"
    more = f" ({len(faults)} errors in all, see details)" if len(faults) > 1 else ""
    return ArgsInvalid(first + more, details={"errors": errors})


def _message(kind: str, message: str) -> str:
    """Returns pydantic's words for its own checks. Those of a package's validators may hold anything."""
    return "is not accepted" if kind in ("value_error", "assertion_error") else shorten(message, MESSAGE_CHARS)

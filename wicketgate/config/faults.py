"""Says what is wrong in a configuration, where, and how to mend it (OPS-1, OPS-64 to OPS-67).

A line for each fault: ``upstreams[0].timeot_s: unknown key; did you mean timeout_s?``. No line repeats a value, which
may be a secret; suggestions are our own words. A value is looked at only to choose the words.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from wicketgate.config.client_entries import MCP_SERVERS, Loc, legal_name
from wicketgate.config.settings.base import SECTION, WORD
from wicketgate.log_text import Redactor

_MOST_KEYS = 15
_redact = Redactor()
_HASH_DIGITS = 64

_WORDS_OF_OTHERS = {
    # top level
    "servers": "list servers under upstreams:, or in the form of MCP clients under mcpServers:",
    "mcp_servers": "did you mean mcpServers?",
    "mcpservers": "did you mean mcpServers?",
    "mcp_server": "did you mean mcpServers?",
    "context_servers": "list servers under upstreams:, or in the form of MCP clients under mcpServers:",
    "backends": "did you mean upstreams?",
    "tools": "tools come from servers, which are listed under upstreams: or mcpServers:",
}
_MEANT: Mapping[str, Mapping[str, str]] = {
    "ModelSettings": {"name": "model", "url": "base_url", "key": "api_key", "token": "api_key"},
    "UpstreamSettings": {
        "uri": "url",
        "endpoint": "url",
        "environment": "env",
        "arguments": "args",
        "cmd": "command",
        "workdir": "cwd",
        "spec": "openapi",
        "id": "name",
        "tool_timeout_s": "timeout_s",
    },
    "KeySettings": {"hash": "sha256", "name": "id", "scopes": "permissions", "disabled": "suspended"},
    "Settings": {"models": "model", "rules": "access"},
    "AccessRuleSettings": {"tool": "match", "tools": "match", "permissions": "require", "condition": "when"},
}
_IN_AN_UPSTREAM = {
    "timeout": "some clients count it in seconds, some in milliseconds; write timeout_s, in seconds",
    "disabledtools": "the plugin tool_manager switches tools off: plugins.middleware, mode: denylist",
    "excludetools": "the plugin tool_manager switches tools off: plugins.middleware, mode: denylist",
    "includetools": "the plugin tool_manager chooses tools: plugins.middleware, mode: allowlist",
    "enabledtools": "the plugin tool_manager chooses tools: plugins.middleware, mode: allowlist",
    "alwaysallow": "it is the client's own approval; remove it. The gate uses rules under access:",
    "autoapprove": "it is the client's own approval; remove it. The gate uses rules under access:",
    "trust": "it is the client's own approval; remove it. The gate uses rules under access:",
    "envfile": 'is not read; name each variable under env: {NAME: "${NAME}"}',
    "transporttype": "did you mean type?",
}
_OF_REQUESTS = ("temperature", "top_p", "top_k", "seed", "stop", "reasoning_effort", "parallel_tool_calls")
_IN_A_MODEL = {
    **{name: f"a field of requests belongs under extra: {{{name}: ...}}" for name in _OF_REQUESTS},
    "timeout": "use first_event_timeout_s or idle_timeout_s",
    "timeout_s": "use first_event_timeout_s or idle_timeout_s",
}
_IN_A_KEY = ("key", "secret", "token", "password")
_A_HASH_ONLY = "a configuration has the sha256 of a key, never the key; wicketgate key new prints both"

_VALUES_OF_OTHERS = {
    "openai": "openai-chat",
    "openai-compatible": "openai-chat",
    "ollama": "openai-chat",
    "vllm": "openai-chat",
    "azure": "openai-chat",
    "openrouter": "openai-chat",
    "gemini": "openai-chat",
    "litellm": "openai-chat",
    "anthropic": "anthropic-messages",
    "claude": "anthropic-messages",
    "none": "scripted",
    "warn": "warning",
    "critical": "error",
    "fatal": "error",
    "trace": "debug",
    "verbose": "debug",
    "streamable-http": "http",
    "true": "always",
    "false": "never",
    "block": "deny",
    "strict": "gateway",
}

_PATTERNS = {
    ("KeySettings", "id"): "must be lower-case letters, digits and hyphens, at most 32, no hyphen first",
    ("KeySettings", "actor"): "must be letters, digits and ._@:/-, at most 128, a letter or digit first",
    ("IntrospectionSettings", "prefix"): "must be letters, digits and ._~+/-, at most 64",
    (
        "UpstreamSettings",
        "python",
    ): "must be package.module:name, the module and its registry or function, or the module alone",
}


def faults(
    error: ValidationError,
    at: str = "",
    *,
    model: type[BaseModel] | None = None,
    places: Mapping[Loc, str] | None = None,
    variables: Mapping[Loc, str] | None = None,
) -> Iterator[str]:
    """Yields a line for each fault, as far as possible with its mend.

    *at* is the place of the checked part in the configuration, *model* the class that was checked. *places* has the
    names of places that the user wrote otherwise, *variables* has by place the environment variable or option that the
    value came from.
    """
    for fault in error.errors(include_url=False):
        loc = tuple(part for part in fault["loc"] if part not in (SECTION.tag, WORD.tag))
        fault = {**fault, "loc": loc}
        source = _source(loc, variables or {})
        text = _explain(fault, model, source)
        # A check of the whole section names the field first; the user may have written a different one.
        named, _, rest = text.partition(" ")
        if places and (*loc, named) in places:
            loc, text = (*loc, named), rest
        where = place(loc, at, places or {})
        yield ": ".join(filter(None, (source, where, text)))


def place(loc: Loc, at: str, places: Mapping[Loc, str]) -> str:
    """Returns the name of a place: ``upstreams[0].env.TOKEN``."""
    text, rest = at, loc
    for length in range(len(loc), 0, -1):
        if loc[:length] in places:
            text, rest = places[loc[:length]], loc[length:]
            break
    for part in rest:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            key = _redact(part)  # a secret may have been pasted where a key stands
            text += f".{key}" if text else key
    return text


def _source(loc: Loc, variables: Mapping[Loc, str]) -> str:
    """Returns the names of variables and options that gave the value at *loc*, a part of it, or all around it."""
    found = [name for path, name in variables.items() if path[: len(loc)] == loc or loc[: len(path)] == path]
    return ", ".join(sorted(found)[:3])


def _explain(fault: Any, model: type[BaseModel] | None, source: str) -> str:
    kind, given, loc = fault["type"], fault["input"], fault["loc"]
    section = _model_at(model, loc[:-1])
    context = fault.get("ctx") or {}
    name = loc[-1] if loc and isinstance(loc[-1], str) else ""
    if given is None and kind not in ("missing", "extra_forbidden", "value_error"):
        return "it has no value; give one, or remove the key"
    match kind:
        case "extra_forbidden":
            return "; ".join(filter(None, ("unknown key", _meant(name, section, model, given, source))))
        case "missing":
            return _missing(name, section)
        case "literal_error":
            return _one_of(re.findall(r"'([^']*)'", str(context.get("expected", ""))), given)
        case "tuple_type" | "list_type":
            if loc == ("upstreams",) and isinstance(given, dict):
                return "must be a list, each entry with '- name:'; servers by name belong under mcpServers:"
            return "must be a list, in [brackets] or with '- ' before each entry"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "must be a section with keys"
        case "bool_type" | "bool_parsing":
            return "must be true or false"
        case "string_type":
            plain = isinstance(given, bool | int | float)
            return "must be text; put it in quotes" if plain else "must be one text"
        case "string_pattern_mismatch":
            return _pattern(name, section, given)
        case "string_too_short":
            return "must not be empty"
        case "too_long":
            return f"has more than {context.get('max_length')} entries"
    if kind in _NUMBERS or kind in _BOUNDS:
        return _number(kind, name, given, context)
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")


_NUMBERS = {
    "int_type": True,
    "int_parsing": True,
    "int_parsing_size": True,
    "int_from_float": True,
    "float_type": False,
    "float_parsing": False,
    "finite_number": False,
}
_BOUNDS = {
    "greater_than": ("more than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def _number(kind: str, name: str, given: object, context: Mapping[str, Any]) -> str:
    unit = "seconds" if name.endswith("_s") else "bytes" if name.endswith("_bytes") else ""
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = context[key]
        shown = f"{int(bound):,}" if float(bound).is_integer() and name != "port" else f"{bound}"
        return f"must be {words} {shown}{f' {unit}' if unit else ''}"
    wanted = "a whole number" if _NUMBERS[kind] else "a number"
    wanted += f" of {unit}" if unit else ""
    with_unit = isinstance(given, str) and re.match(r"\s*[0-9.]+\s*[A-Za-z]", given)
    return f"must be {wanted}{', without a unit' if with_unit else ''}"


def _one_of(words: Sequence[str], given: object) -> str:
    text = f"must be {', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else f"must be {words[0]}"
    told = given.strip().lower() if isinstance(given, str) else str(given).lower()
    meant = _VALUES_OF_OTHERS.get(told, "")
    if meant not in words:
        meant = next(iter(get_close_matches(told, words, 1, 0.6)), "")
    return f"{text}; did you mean {meant}?" if meant else text


def _missing(name: str, section: type[BaseModel] | None) -> str:
    match section.__name__ if section else "", name:
        case "UpstreamSettings", "name":
            return "is missing: it becomes the namespace of the tools"
        case "KeySettings", _:
            return "is missing; wicketgate key new prints a whole entry"
        case "FallbackSettings", "provider":
            return "is missing: openai-chat or anthropic-messages"
    return "is missing"


def _pattern(name: str, section: type[BaseModel] | None, given: object) -> str:
    text = given if isinstance(given, str) else ""
    match section.__name__ if section else "", name:
        case "KeySettings", "sha256":
            if re.fullmatch(rf"[0-9A-Fa-f]{{{_HASH_DIGITS}}}", text):
                return "must be 64 hex digits in lower case"
            if text.startswith("wg_"):
                return "this is a key, not its SHA-256; wicketgate key new prints the hash with each key"
            return "must be the SHA-256 of a key, 64 hex digits; wicketgate key new prints a key and its entry"
        case "UpstreamSettings", "name":
            return f"must be lower-case letters, digits, - and _, a letter first: {legal_name(text)}"
        case owner, key if (owner, key) in _PATTERNS:
            return _PATTERNS[owner, key]
    return "is malformed"


def _meant(key: str, section: type[BaseModel] | None, root: type[BaseModel] | None, given: object, source: str) -> str:
    """Returns the mend of an unknown *key* in *section*, or an empty text."""
    if section is None:
        return ""
    kind, plain = section.__name__, _snake(key)
    own = [name for name, field in section.model_fields.items() if not field.exclude]
    if kind == "KeySettings" and plain in _IN_A_KEY:
        return _A_HASH_ONLY
    if kind == "UpstreamSettings" and (text := _IN_AN_UPSTREAM.get(plain.replace("_", ""))):
        return text
    if kind in ("ModelSettings", "FallbackSettings") and plain in _IN_A_MODEL and plain not in own:
        return _IN_A_MODEL[plain]
    if section is root and plain in _WORDS_OF_OTHERS:
        return _WORDS_OF_OTHERS[plain]
    # A key of this section: by its spelling, its meaning elsewhere, its unit, its likeness.
    meant = plain if plain in own else _MEANT.get(kind, {}).get(plain, "")
    for unit, words in (("_s", "in seconds"), ("_bytes", "in bytes")):
        if not meant and f"{plain}{unit}" in own:
            return f"did you mean {_with_source(plain + unit, key, source)}, {words}?"
    if not meant:
        meant = next(iter(get_close_matches(plain, own, 1, 0.75)), "")
    if meant:
        return f"did you mean {_with_source(meant, key, source)}?"
    # A key of a different section.
    if root is not None:
        homes = [path for path in _paths(root) if path.rpartition(".")[2] == plain]
        if section is root and source.endswith("CONFIGS"):
            return "did you mean WICKETGATE_CONFIG?"
        if 0 < len(homes) <= 3 and not (homes == [plain] and section is root):
            return f"did you mean {' or '.join(_with_source(home, key, source) for home in homes)}?"
    at_top = (MCP_SERVERS,) if kind == "Settings" else ()
    known = f"known here: {', '.join((*own, *at_top))}" if at_top or len(own) <= _MOST_KEYS else ""
    if section is root and source.startswith("WICKETGATE_"):
        return "; ".join(filter(None, ("every variable that begins with WICKETGATE_ is a setting", known)))
    return known


def _with_source(meant: str, key: str, source: str) -> str:
    """Returns *meant*, or the name of the variable that would say it."""
    if not source.startswith("WICKETGATE_") or "," in source:
        return meant
    parts = source.removeprefix("WICKETGATE_").split("__")
    at = len(parts) - 1 - parts[::-1].index(key.upper()) if key.upper() in parts else None
    return (
        meant if at is None else "WICKETGATE_" + "__".join([*parts[:at], *meant.upper().split("."), *parts[at + 1 :]])
    )


def _snake(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).replace("-", "_").replace(" ", "_").lower()


def _model_at(model: type[BaseModel] | None, loc: Loc) -> type[BaseModel] | None:
    """Returns the section at *loc*."""
    annotation: Any = model
    for part in loc:
        annotation = _inner(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            field = annotation.model_fields.get(str(part))
            annotation = None if field is None else field.annotation
        else:
            arguments = [each for each in get_args(annotation) if each is not Ellipsis]
            annotation = arguments[-1] if arguments else None
        if annotation is None:
            return None
    annotation = _inner(annotation)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _inner(annotation: Any) -> Any:
    """Returns the type of an optional value, and the section of one that may be a word."""
    if get_origin(annotation) in (Union, UnionType):
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _paths(model: type[BaseModel], before: str = "", depth: int = 0) -> Iterator[str]:
    """Yields every setting as a path: ``server.port``, ``upstreams[].name``."""
    for name, field in model.model_fields.items():
        if field.exclude:
            continue
        yield f"{before}{name}"
        annotation, mark = _inner(field.annotation), ""
        if get_origin(annotation) is tuple:
            annotation, mark = get_args(annotation)[0], "[]"
        if isinstance(annotation, type) and issubclass(annotation, BaseModel) and depth < 3:
            yield from _paths(annotation, f"{before}{name}{mark}.", depth + 1)

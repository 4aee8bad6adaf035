"""The translation of one server of a client's file into one of our upstreams (OPS-4, OPS-82, OPS-84, OPS-85).

A part that is unknown here, or cannot be done, gets a note. A value that looks like a secret never gets into the
configuration that is written; a variable ``${NAME}`` takes its place.
"""

import json
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from pydantic import ValidationError

from app.commands.import_tools import ALL_TOOLS, ToolChoice, from_lists
from app.commands.import_variables import Values, Variables, between_references
from wicketgate.config.client_entries import path_of
from wicketgate.config.settings import UpstreamSettings

_URLS = ("url", "serverUrl", "httpUrl")
_HTTP = frozenset({"http", "streamable-http", "streamablehttp", "streamable_http"})
_NO_KIND = frozenset({"", "local", "remote", "stdio"})
_ONLY = ("includeTools", "enabled_tools", "enabledTools", "allowedTools", "allowed_tools")
_OFF = ("excludeTools", "disabled_tools", "disabledTools")
_REMOTE = ("headers", "requestOptions", "http_headers", "env_http_headers", "bearer_token", "bearer_token_env_var")
_LOCAL = ("args", "env", "environment", "env_vars", "cwd")
_TIMEOUTS = (
    ("tool_timeout_sec", "timeout_s", 1.0),
    ("connectionTimeout", "connect_timeout_s", 0.001),
    ("startup_timeout_ms", "connect_timeout_s", 0.001),
    ("startup_timeout_sec", "connect_timeout_s", 1.0),
)
"""Keys of clients, our setting, and the unit in seconds. A later row takes precedence."""
_UNDERSTOOD = frozenset({"command", "type", "transport", "disabled", "enabled", "isActive", "timeout"}).union(
    _URLS, _ONLY, _OFF, _REMOTE, _LOCAL, (key for key, *_ in _TIMEOUTS)
)
_WITHOUT_EFFECT = frozenset({"name", "source", "description", "schema", "version"})
# Nothing is lost where these are false.
_FLAGS = frozenset(
    {"trust", "remote", "required", "alwaysAllow", "alwaysLoad", "supports_parallel_tool_calls", "gallery"}
)
_A_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_A_PATH = re.compile(r"[/\\~.]|[A-Za-z]:\\")
_MAX_PARTS = 1000
_MAX_TIMEOUT_S = 86_400
_MOST = 1_000_000_000
_USUAL_CONNECT_S = 60
_MAX_SHOWN_CHARS = 80
_MAX_TEXT_CHARS = 32 * 1024

# The program itself, as a package of a certain version, or as the image of a container.
_THIS_PROGRAM = re.compile(r"wicketgate(?:\.exe|-mcp)?(?:[\[=<>~!@:].*)?", re.IGNORECASE | re.DOTALL)
_ITS_KEY = re.compile(r"\bWG_KEY\b|\bwg_[a-z0-9-]{1,32}_[A-Za-z0-9_-]{20,}")
_ITS_NAME = "wicketgate"


@dataclass(frozen=True, slots=True)
class ClientServer:
    """One entry of a client's file.

    *disabled*, *tools* and *notes* come from lists beside it; *place* names the part of the file. *client* is the name
    of the client, empty if it is not known, and *source* names the file where there are several. *inputs* describes, by
    id, the values that the client asks its user for.
    """

    name: str
    entry: Mapping[str, Any]
    disabled: bool = False
    place: str = ""
    client: str = ""
    source: str = ""
    tools: ToolChoice = ALL_TOOLS
    notes: tuple[str, ...] = ()
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_off(self) -> bool:
        off = self.entry.get("disabled") is True or self.entry.get("enabled") is False
        return self.disabled or off or self.entry.get("isActive") is False

    @property
    def origin(self) -> str:
        return ", ".join(filter(None, (self.source, self.place)))


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """*settings* in the spelling of the configuration, or None if *notes* say why the server was not taken over.

    *tools* are those that stay on.
    """

    name: str
    settings: Mapping[str, Any] | None
    notes: tuple[str, ...]
    tools: ToolChoice = ALL_TOOLS


def import_entry(server: ClientServer, name: str, variables: Variables) -> ImportedServer:
    """Translate *server* under the *name* that it gets here."""
    reader = _EntryReader(server, name, variables)
    try:
        settings = reader.settings()
        UpstreamSettings.model_validate(_without_variables(settings))
    except _NotTaken as reason:
        return ImportedServer(name, None, (*reader.notes, str(reason)))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        message = ": ".join(
            filter(None, (".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, ")))
        )
        return ImportedServer(name, None, (*reader.notes, message))
    return ImportedServer(name, settings, tuple(reader.notes), reader.tools)


def is_this_gate(server: ClientServer) -> bool:
    """True if the entry is a way to a gate, as ``wicketgate connect`` writes it, or a bridge to one.

    A gate with itself as an upstream would call itself without end.
    """
    if server.name.lower() == _ITS_NAME or _ITS_KEY.search(json.dumps(server.entry, default=str)):
        return True
    words = _all_words(server.entry.get("command")) + _all_words(server.entry.get("args"))
    programs = [place for place, word in enumerate(words) if _THIS_PROGRAM.fullmatch(re.split(r"[\\/]", word)[-1])]
    return bool(programs) and "mcp" in words[programs[0] + 1 :]


def _all_words(value: object) -> list[str]:
    if isinstance(value, Mapping):  # Zed
        return _all_words(value.get("path")) + _all_words(value.get("args"))
    if isinstance(value, list):
        return [word for word in value if isinstance(word, str)]
    return [value, *value.split()] if isinstance(value, str) else []


_UNITS = {"claude-code": 0.001, "gemini": 0.001, "opencode": 0.001, "cline": 1.0, "codex": 1.0}
"""Seconds per unit of ``timeout``, by client."""


def _read_timeouts(entry: Mapping[str, Any], client: str, notes: list[str]) -> dict[str, Any]:
    """Returns ``timeout_s`` for calls and ``connect_timeout_s`` for the start (OPS-85)."""
    given: list[tuple[str, Any, str, float | None]] = []
    given += [(key, entry.get(key), setting, unit) for key, setting, unit in _TIMEOUTS]
    timeout = entry.get("timeout")
    if isinstance(timeout, Mapping):  # opencode, version 2
        given += [(f"timeout.{key}", timeout.get(key), _OF_OPENCODE[key], 0.001) for key in _OF_OPENCODE]
    elif timeout is not None and not _is_time(entry.get("tool_timeout_sec")):
        given.append(("timeout", timeout, "timeout_s", _unit_of(timeout, client, notes)))
    times: dict[str, Any] = {}
    for key, value, setting, unit in given:
        if value is None or unit is None:
            continue
        if not _is_time(value):
            notes.append(f"{key} is not imported: it is not a positive number")
            continue
        seconds = round(min(value, _MOST) * unit, 3) or 0.001
        if seconds > _MAX_TIMEOUT_S:
            seconds = _MAX_TIMEOUT_S
            notes.append(f"{key} was shortened to {_MAX_TIMEOUT_S} s, the longest here")
        times[setting] = int(seconds) if seconds == int(seconds) else seconds
    # For opencode one timeout bounds the start too. Its usual 5 s would be too short for npx.
    if client == "opencode" and given[-1][0] == "timeout" and times.get("timeout_s", 0) > _USUAL_CONNECT_S:
        times["connect_timeout_s"] = times["timeout_s"]
    return times


_OF_OPENCODE = {"request": "timeout_s", "startup": "connect_timeout_s"}


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _unit_of(value: object, client: str, notes: list[str]) -> float | None:
    """Returns the number of seconds in one unit of ``timeout``, None if it cannot be known."""
    if not _is_time(value) or (client == "zed" and value <= 3600):
        return 1
    if client == "claude-code" and value < 1000:
        notes.append(f"timeout {value} is not imported: the client ignores less than 1000 ms")
        return None
    if client in _UNITS:
        return _UNITS[client]
    # The others do not say. Zed counted milliseconds at first.
    if 1000 <= value < 10_000:
        notes.append(f"timeout {value} is not imported: it could be seconds or milliseconds")
        return None
    unit, factor = ("seconds", 1.0) if value < 1000 else ("milliseconds", 0.001)
    notes.append(f"timeout {value} was read as {unit}")
    return factor


class _NotTaken(Exception):
    """An entry that is no upstream. The text gives the reason."""


class _EntryReader:
    def __init__(self, server: ClientServer, name: str, variables: Variables) -> None:
        entry = dict(server.entry)
        if isinstance(entry.get("transport"), Mapping):  # {"transport": {"type": "stdio", "command": ...}}
            entry |= entry.pop("transport")
        if isinstance(entry.get("command"), Mapping):  # Zed: {"command": {"path": ..., "args": ..., "env": ...}}
            entry |= {("command" if key == "path" else key): value for key, value in entry.pop("command").items()}
        if isinstance(entry.get("command"), list):  # opencode: the command with its arguments
            words = [*entry["command"], *(entry["args"] if isinstance(entry.get("args"), list) else ())]
            entry |= {"command": words[0] if words else "", "args": words[1:]}
        self._entry = entry
        self._name = name
        self._client = server.client
        self._variables = variables
        self._disabled = server.is_off
        self.tools = server.tools
        self.notes: list[str] = [f"was called {_shown(server.name)}"] if server.name != name else []
        if server.origin:
            self.notes.append(f"from {server.origin}")
        self.notes += server.notes
        self._values = Values(name, variables, self.notes, server.inputs, optional=self._disabled)

    def settings(self) -> dict[str, Any]:
        """Raises _NotTaken."""
        self._check_size()
        url = next((self._entry[key] for key in _URLS if isinstance(self._entry.get(key), str)), "")
        command = self._entry.get("command")
        settings: dict[str, Any] = {"name": self._name, **({"enabled": False} if self._disabled else {})}
        if isinstance(command, str) and command.strip():
            settings |= self._local(command)
            self._note_unused(*_URLS, *_REMOTE)
        elif url:
            settings |= self._remote(url)
            self._note_unused(*_LOCAL)
        elif self._entry.get("source") == "extension" or "settings" in self._entry:
            raise _NotTaken("this server belongs to an extension of the editor and has no command to import")
        else:
            raise _NotTaken("it has neither a command nor a url")
        settings |= _read_timeouts(self._entry, self._client, self.notes)
        self._choose_tools()
        self._note_unused(*sorted(map(str, self._entry.keys() - _UNDERSTOOD - _WITHOUT_EFFECT)))
        return settings

    def _check_size(self) -> None:
        parts = [value for value in self._entry.values() if isinstance(value, list | Mapping)]
        if any(len(part) > _MAX_PARTS for part in parts):
            raise _NotTaken(f"a list in it has more than {_MAX_PARTS} members")
        texts = [*self._entry.values()]
        for part in parts:
            texts += [*part, *part.values()] if isinstance(part, Mapping) else part
        if any(isinstance(text, str) and len(text) > _MAX_TEXT_CHARS for text in texts):
            raise _NotTaken(f"a text in it has more than {_MAX_TEXT_CHARS // 1024} Ki characters")

    def _choose_tools(self) -> None:
        only = next((self._entry[key] for key in _ONLY if self._entry.get(key) is not None), None)
        off = next((self._entry[key] for key in _OFF if self._entry.get(key) is not None), None)
        tools = self._entry.get("tools")
        if isinstance(tools, list) and only is None:  # of Copilot, where ["*"] are all
            self._entry.pop("tools")
            only = None if "*" in tools else tools
        if isinstance(only, list):  # Gemini takes name(arguments) for name
            only = [name.partition("(")[0] if isinstance(name, str) else name for name in only]
        self.tools = self.tools.narrowed(from_lists(only, off, self.notes, patterns=False))
        if note := self.tools.note():
            self.notes.append(note)

    def _local(self, command: str) -> dict[str, Any]:
        arguments = self._entry.get("args") or []
        if not isinstance(arguments, list):
            raise _NotTaken("args is not a list")
        words = [command, *map(_text, arguments)]
        if not arguments and " " in command.strip() and not _A_PATH.match(command):
            words = _split(command)
            self.notes.append("the command was split into words")
        settings: dict[str, Any] = {"command": self._values.words(words)}
        env = self._texts("env") | self._texts("environment")
        written = {key: self._values.value(key, value, key, f"env {key}") for key, value in env.items()}
        # Codex: variables that are passed on, if they are set.
        for name in self._forwarded():
            written.setdefault(name, self._variables.needed(name, f"passed on to {self._name}", optional=True))
        if written:
            settings["env"] = written
        if isinstance(self._entry.get("cwd"), str):
            settings["cwd"] = self._values.translate(self._entry["cwd"])
        return settings

    def _remote(self, url: str) -> dict[str, Any]:
        settings: dict[str, Any] = {"url": self._values.url(self._without_fragment(url), "url")}
        # The transport: a client that does not name it decides by the end of the url.
        kind = str(self._entry.get("type") or self._entry.get("transport") or "").lower()
        if kind == "sse":
            settings["transport"] = "sse"
        elif kind in _NO_KIND and self._means_sse(url):
            settings["transport"] = "sse"
            self.notes.append("read as the older SSE transport, as this client does if there is no type")
        elif kind in _NO_KIND and path_of(url).endswith("/sse"):
            settings["transport"] = "sse"
            self.notes.append("read as the older SSE transport, because its url ends in /sse")
        elif kind not in _HTTP | _NO_KIND:
            self.notes.append(f"type {kind!r} is unknown here; read as streamable HTTP")
        # The headers, in either of two places.
        headers = self._texts("headers")
        options = self._entry.get("requestOptions")
        if isinstance(options, Mapping):
            if isinstance(options.get("headers"), Mapping):
                headers |= {str(key): _text(value) for key, value in options["headers"].items()}
            self.notes += [f"not imported: requestOptions.{key}" for key in options if key != "headers"]
        headers |= self._texts("http_headers")
        if isinstance(self._entry.get("bearer_token"), str):
            headers.setdefault("Authorization", f"Bearer {self._entry['bearer_token']}")
        written = {key: self._values.header(key, value) for key, value in headers.items()}
        # Codex: headers whose values stand in variables.
        for header, variable in self._texts("env_http_headers").items():
            written[header] = self._variable(variable, f"header {header}")
        if isinstance(bearer := self._entry.get("bearer_token_env_var"), str) and bearer:
            written["Authorization"] = f"Bearer {self._variable(bearer, 'bearer token')}"
        if written:
            settings["headers"] = written
        return settings

    def _without_fragment(self, url: str) -> str:
        done = ""
        for part, is_text in between_references(url):
            before, sign, _ = part.partition("#") if is_text else (part, "", "")
            done += before
            if sign:
                self.notes.append("the part of its url after # was omitted, because no server receives it")
                break
        return done

    def _means_sse(self, url: str) -> bool:
        """Cline takes a server without a type for one of the older kind. So does Gemini CLI with *url*, whose newer
        versions try both."""
        if self._client == "gemini":
            return self._entry.get("httpUrl") is None and not path_of(url).endswith("/mcp")
        return self._client == "cline"

    def _forwarded(self) -> list[str]:
        """The names in ``env_vars``, where an entry may also be ``{name: ..., source: ...}``."""
        given = self._entry.get("env_vars")
        given = given if isinstance(given, list) else []
        names = [each.get("name") if isinstance(each, Mapping) else each for each in given]
        return [name for name in names if isinstance(name, str) and _A_VARIABLE.fullmatch(name)]

    def _variable(self, name: str, description: str) -> str:
        """Raises _NotTaken."""
        if not _A_VARIABLE.fullmatch(name):
            raise _NotTaken(f"{description}: the name of its variable is none")
        return self._variables.needed(name, f"{description} of {self._name}", optional=self._disabled)

    def _texts(self, key: str) -> dict[str, str]:
        """The texts of ``env`` or ``headers``, by name."""
        given = self._entry.get(key) or {}
        if isinstance(given, list):  # ["Authorization: Bearer ..."], ["A=b"]
            pairs = [str(each).partition(":" if key == "headers" else "=") for each in given]
            return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}
        if not isinstance(given, Mapping):
            self._note_unused(key)
            return {}
        texts = {name: _text(value) for name, value in given.items() if isinstance(value, str | int | float)}
        self.notes += [f"not imported: {key}.{name}, which is not text" for name in given if name not in texts]
        return {str(name): text for name, text in texts.items()}

    def _note_unused(self, *keys: str) -> None:
        given = [key for key in keys if self._entry.get(key) not in (None, "", [], {})]
        given = [key for key in given if key not in _FLAGS or self._entry[key] is not False]
        if given:
            self.notes.append(f"not imported: {', '.join(given)}")


def _shown(name: str) -> str:
    return repr(name if len(name) <= _MAX_SHOWN_CHARS else f"{name[:_MAX_SHOWN_CHARS]}…")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _without_variables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with a placeholder for variables in the url, so that the rest can be validated."""
    url = re.sub(r"\$\{[^}]*\}", "variable", settings.get("url", ""))
    return {**settings, "url": "http://variable" if url.startswith("variable") else url}

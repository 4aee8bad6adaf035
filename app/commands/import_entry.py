"""The translation of one server of a client's file into one of our upstreams (OPS-4, OPS-82, OPS-84, OPS-85).

A part that is unknown here, or cannot be done, gets a note. A value that looks like a secret never gets into the
configuration that is written; a variable ``${NAME}`` takes its place.
"""

import json
import re
import shlex
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from app.clients import CLIENTS, KINDS, LOCAL, REMOTE, URLS
from app.commands.import_tools import ALL_TOOLS, ToolChoice, from_lists
from app.commands.import_variables import Values, Variables, between_references
from wicketgate.config.client_entries import TRANSPORTS, path_of
from wicketgate.config.settings import UpstreamSettings

_NO_TRANSPORT = frozenset({"", "local", "remote", "stdio"})
_ONLY = ("includeTools", "enabled_tools", "enabledTools", "allowedTools", "allowed_tools")
_OFF = ("excludeTools", "disabled_tools", "disabledTools")
_TIMEOUTS: tuple[tuple[str, str, float | None], ...] = (
    ("timeout", "timeout_s", None),
    ("timeout.request", "timeout_s", 0.001),
    ("timeout.startup", "connect_timeout_s", 0.001),
    ("tool_timeout_sec", "timeout_s", 1),
    ("connectionTimeout", "connect_timeout_s", 0.001),
    ("startup_timeout_ms", "connect_timeout_s", 0.001),
    ("startup_timeout_sec", "connect_timeout_s", 1),
)
"""Keys of clients, our setting, and the unit in seconds, None for that of the client. A later row takes precedence."""
_UNDERSTOOD = frozenset({"command", "disabled", "enabled", "isActive"}).union(
    KINDS, URLS, _ONLY, _OFF, REMOTE, LOCAL, (key for key, *_ in _TIMEOUTS)
)
_WITHOUT_EFFECT = frozenset({"name", "source", "description", "schema", "version"})
# Nothing is lost where these are false.
_FLAGS = frozenset(
    {"trust", "remote", "required", "alwaysAllow", "alwaysLoad", "supports_parallel_tool_calls", "gallery"}
)
_A_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_A_PATH = re.compile(r"[/\\~.]|[A-Za-z]:\\")
_MAX_TIMEOUT_S = 86_400
_USUAL_CONNECT_S = 60
_MAX_NAME_CHARS = 80

# The program itself, as a package of a certain version, or as the image of a container.
_THIS_PROGRAM = re.compile(r"wicketgate(?:\.exe|-mcp)?(?:[\[=<>~!@:].*)?", re.IGNORECASE | re.DOTALL)
_ITS_KEY = re.compile(r"\bWG_KEY\b|\bwg_[a-z0-9-]{1,32}_[A-Za-z0-9_-]{20,}")
_ITS_NAME = "wicketgate"


@dataclass(frozen=True, slots=True)
class ClientServer:
    """One entry of a client's file.

    *disabled*, *tools* and *notes* come from lists beside it; *place* names the part of the file. *client* is the name
    of the client, empty if it is not known, and *source* names the file. *inputs* describes, by id, the values that the
    client asks its user for.
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

    *tools* are those that stay on, and *origin* is that of the entry.
    """

    name: str
    settings: Mapping[str, Any] | None
    notes: tuple[str, ...]
    origin: str
    tools: ToolChoice = ALL_TOOLS


def import_entry(server: ClientServer, name: str, variables: Variables) -> ImportedServer:
    """Translates *server* under the *name* that it gets here."""
    notes = [f"was called {server.name[:_MAX_NAME_CHARS]!r}"] if server.name != name else []
    notes += server.notes
    try:
        reader = _EntryReader(server, name, variables, notes)
        settings = reader.settings()
        UpstreamSettings.model_validate(_without_variables(settings))
    except _NotTaken as reason:
        return ImportedServer(name, None, (*notes, str(reason)), server.origin)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        words = (".".join(map(str, fault["loc"])), fault["msg"].removeprefix("Value error, "))
        return ImportedServer(name, None, (*notes, ": ".join(filter(None, words))), server.origin)
    tools = server.tools.narrowed(reader.tools())
    notes += [note] if (note := tools.note()) else []
    return ImportedServer(name, settings, tuple(notes), server.origin, tools)


def is_this_gate(server: ClientServer) -> bool:
    """True if the entry is a way to a gate, as ``wicketgate connect`` writes it, or a bridge to one.

    A gate with itself as an upstream would call itself without end.
    """
    if server.name.lower() == _ITS_NAME or _ITS_KEY.search(json.dumps(server.entry, default=str)):
        return True
    flat = _flattened(server.entry)
    words = [*_words(flat.get("command")), *_words(flat.get("args"))]
    programs = [place for place, word in enumerate(words) if _THIS_PROGRAM.fullmatch(re.split(r"[\\/]", word)[-1])]
    return bool(programs) and "mcp" in words[programs[0] + 1 :]


def _words(value: object) -> list[str]:
    if isinstance(value, list):
        return [word for word in value if isinstance(word, str)]
    return [value, *value.split()] if isinstance(value, str) else []


def _read_timeouts(entry: Mapping[str, Any], client: str, notes: list[str]) -> dict[str, Any]:
    """Returns ``timeout_s`` for calls and ``connect_timeout_s`` for the start (OPS-85)."""
    times: dict[str, Any] = {}
    for key, setting, own in _TIMEOUTS:
        value, unit = entry.get(key), own or (CLIENTS[client].timeout_unit_s if client else None)
        if value is None:
            continue
        if unit is None:
            notes.append(f"{key} is not imported: it could be seconds or milliseconds")
        elif isinstance(value, int | float) and 1 / unit <= value <= _MAX_TIMEOUT_S / unit and value is not True:
            seconds = round(value * unit, 3)
            times[setting] = int(seconds) if seconds == int(seconds) else seconds
        else:
            notes.append(f"{key} is not imported: it is not a number from 1 to {_MAX_TIMEOUT_S} seconds")
    # For opencode one timeout bounds the start too. Its usual 5 s would be too short for npx.
    if client == "opencode" and times.get("timeout_s", 0) > _USUAL_CONNECT_S:
        times.setdefault("connect_timeout_s", times["timeout_s"])
    return times


class _NotTaken(Exception):
    """An entry that is no upstream. The text gives the reason."""


def _flattened(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entry with one place for each thing that clients put into different places."""
    flat = dict(entry)
    match flat.get("command"):
        case Mapping() as command:  # Zed: {"command": {"path": ..., "args": ..., "env": ...}}
            flat |= {("command" if key == "path" else key): value for key, value in command.items()}
        case [*words]:  # opencode: the command with its arguments
            words += flat["args"] if isinstance(flat.get("args"), list) else []
            flat |= {"command": words[0] if words else "", "args": words[1:]}
    if isinstance(timeout := flat.get("timeout"), Mapping):  # opencode, version 2
        flat |= {"timeout": None, **{f"timeout.{key}": value for key, value in timeout.items()}}
    return flat


class _EntryReader:
    def __init__(self, server: ClientServer, name: str, variables: Variables, notes: list[str]) -> None:
        self._entry = _flattened(server.entry)
        self._name = name
        self._client = server.client
        self._disabled = server.is_off
        self._notes = notes
        self._values = Values(name, variables, notes, server.inputs, optional=self._disabled)

    def settings(self) -> dict[str, Any]:
        """Raises _NotTaken."""
        url = next((self._entry[key] for key in URLS if isinstance(self._entry.get(key), str)), "")
        command = self._entry.get("command")
        settings: dict[str, Any] = {"name": self._name, **({"enabled": False} if self._disabled else {})}
        if isinstance(command, str) and command.strip():
            settings |= self._local(command)
            self._note_unused(*URLS, *REMOTE)
        elif url:
            settings |= self._remote(url)
            self._note_unused(*LOCAL)
        elif self._entry.get("source") == "extension" or "settings" in self._entry:
            raise _NotTaken("this server belongs to an extension of the editor and has no command to import")
        else:
            raise _NotTaken("it has neither a command nor a url")
        settings |= _read_timeouts(self._entry, self._client, self._notes)
        understood = _UNDERSTOOD | ({"tools"} if isinstance(self._entry.get("tools"), list) else set())
        understood -= {key for key in KINDS if not isinstance(self._entry.get(key), str)}
        self._note_unused(*sorted(map(str, self._entry.keys() - understood - _WITHOUT_EFFECT)))
        return settings

    def tools(self) -> ToolChoice:
        given = {key: value for key, value in self._entry.items() if value is not None}
        only, off = (next((given[key] for key in keys if key in given), None) for keys in (_ONLY, _OFF))
        tools = self._entry.get("tools")
        if isinstance(tools, list) and only is None:  # of Copilot, where ["*"] are all
            only = None if "*" in tools else tools
        if isinstance(only, list):  # Gemini takes name(arguments) for name
            only = [name.partition("(")[0] if isinstance(name, str) else name for name in only]
        return from_lists(only, off, self._notes)

    def _local(self, command: str) -> dict[str, Any]:
        arguments = self._entry.get("args") or []
        if not isinstance(arguments, list):
            raise _NotTaken("args is not a list")
        words = [command, *map(_text, arguments)]
        if not arguments and " " in command.strip() and not _A_PATH.match(command):
            with suppress(ValueError):
                words = shlex.split(command)
                self._notes.append("the command was split into words")
        settings: dict[str, Any] = {"command": self._values.words(words)}
        env = self._texts("env") | self._texts("environment")
        # Codex: variables that are passed on, if they are set; an entry may also be {name: ..., source: ...}.
        given = self._entry.get("env_vars")
        for each in given if isinstance(given, list) else ():
            name = each.get("name") if isinstance(each, Mapping) else each
            env.setdefault(str(name), self._reference(name, ":-"))
        if env:
            settings["env"] = {key: self._values.value(key, value, key, f"env {key}") for key, value in env.items()}
        if isinstance(self._entry.get("cwd"), str):
            settings["cwd"] = self._values.translate(self._entry["cwd"])
        return settings

    def _remote(self, url: str) -> dict[str, Any]:
        settings: dict[str, Any] = {"url": self._values.url(self._without_fragment(url), "url")}
        # The transport: a client that does not name it decides by the end of the url.
        given = self._entry.get("type") or self._entry.get("transport")
        kind = given.lower() if isinstance(given, str) else ""
        if kind in _NO_TRANSPORT and self._means_sse(url):
            self._notes.append("read as the older SSE transport, as this client does if there is no type")
            kind = "sse"
        if kind == "sse":
            settings["transport"] = "sse"
        elif kind and kind not in TRANSPORTS:
            self._notes.append(f"type {kind!r} is unknown here; read as streamable HTTP")
        headers = self._texts("headers") | self._texts("http_headers")
        options = self._entry.get("requestOptions")
        if isinstance(options, Mapping):
            headers |= self._texts("headers", options)
            self._notes += [f"not imported: requestOptions.{key}" for key in options if key != "headers"]
        if isinstance(token := self._entry.get("bearer_token"), str):
            headers.setdefault("Authorization", f"Bearer {token}")
        # Codex: headers whose values are in variables.
        headers |= {name: self._reference(variable) for name, variable in self._texts("env_http_headers").items()}
        if bearer := self._entry.get("bearer_token_env_var"):
            headers["Authorization"] = f"Bearer {self._reference(bearer)}"
        if headers:
            settings["headers"] = {key: self._values.header(key, value) for key, value in headers.items()}
        return settings

    def _without_fragment(self, url: str) -> str:
        done = ""
        for part, is_text in between_references(url):
            before, sign, _ = part.partition("#") if is_text else (part, "", "")
            done += before
            if sign:
                self._notes.append("the part of its url after # was omitted, because no server receives it")
                break
        return done

    def _means_sse(self, url: str) -> bool:
        """Cline takes a server without a type for one of the older kind. So does Gemini CLI with *url*, whose newer
        versions try both. Other clients look at the end of the url."""
        if self._client == "gemini":
            return self._entry.get("httpUrl") is None and not path_of(url).endswith("/mcp")
        return self._client == "cline" or path_of(url).endswith("/sse")

    def _reference(self, name: object, default: str = "") -> str:
        """Raises _NotTaken."""
        if not isinstance(name, str) or not _A_VARIABLE.fullmatch(name):
            raise _NotTaken("a place for the name of a variable holds something else")
        return f"${{{name}{default}}}"

    def _texts(self, key: str, place: Mapping[str, Any] | None = None) -> dict[str, str]:
        """The texts of ``env`` or ``headers``, by name."""
        given = (self._entry if place is None else place).get(key) or {}
        if not isinstance(given, Mapping):
            self._notes.append(f"not imported: {key}")
            return {}
        texts = {name: _text(value) for name, value in given.items() if isinstance(value, str | int | float)}
        self._notes += [f"not imported: {key}.{name}, which is not text" for name in given if name not in texts]
        return {str(name): text for name, text in texts.items()}

    def _note_unused(self, *keys: str) -> None:
        given = [key for key in keys if self._entry.get(key) not in (None, "", [], {})]
        given = [key for key in given if key not in _FLAGS or self._entry[key] is not False]
        if given:
            self._notes.append(f"not imported: {', '.join(given)}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _without_variables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with a placeholder for variables in the url, so that the rest can be validated."""
    url = re.sub(r"\$\{[^}]*\}", "variable", settings.get("url", ""))
    return {**settings, "url": "http://variable" if url.startswith("variable") else url}

"""The translation of one server of a client's file into an upstream of ours (OPS-4).

A part that is unknown here, or cannot be done, gets a note. A value that looks like a secret never gets into the
configuration that is written; a variable ``${NAME}`` takes its place.
"""

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from wicketgate.config.settings import SECRET_NAME, UpstreamSettings
from wicketgate.log_text import Redactor

_URLS = ("url", "serverUrl", "httpUrl")
_HTTP = frozenset({"http", "streamable-http", "streamablehttp", "streamable_http"})
_UNDERSTOOD = frozenset(
    {"command", "args", "env", "cwd", *_URLS, "headers", "type", "transport", "requestOptions", "disabled", "enabled"}
)
_WITHOUT_EFFECT = frozenset({"name", "source", "description", "schema", "version"})
_HEADER_FLAGS = frozenset({"--header", "-H"})
_ENV_FLAGS = frozenset({"-e", "--env"})
_A_PATH = re.compile(r"[/\\~.]|[A-Za-z]:\\")

# ${{ secrets.X }}, ${env:X} and ${input:X}, ${X} and ${X:-default}, anything else in ${}, {env:X}, $X
_REFERENCE = re.compile(
    r"\$\{\{\s*\w+\.(?P<dotted>\w+)\s*\}\}"
    r"|\$\{(?P<kind>env|input):(?P<named>[^}]+)\}"
    r"|\$\{(?P<plain>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{(?P<other>[^}]*)\}"
    r"|\{env:(?P<braced>\w+)\}"
    r"|(?<!\w)\$(?P<bare>[A-Z_][A-Z0-9_]*)\b"
)
_NAMES = ("dotted", "named", "plain", "other", "braced", "bare")
_SPECIAL = {"userHome": "HOME", "workspaceFolder": "WORKSPACE_FOLDER", "workspaceRoot": "WORKSPACE_FOLDER"}
_SEPARATORS = frozenset({"pathSeparator", "/"})

_LONG = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+=-]{24,512}")
_ADDRESS = re.compile(r"(?:[A-Za-z]:)?[~./\\]|https?://")
_PLAIN = re.compile(r"\d{1,7}|true|false|yes|no|on|off|none|null", re.IGNORECASE)
_SCHEME = re.compile(r"((?:bearer|basic|token|apikey)\s+)(\S+)", re.IGNORECASE)
# user:password@, and a long user alone, as in the address of an error tracker.
_IN_URL = re.compile(r"(?<=://)(?:[^\s/:@]*:([^\s/@]+)|([^\s/:@]{16,}))@")
_IN_QUERY = re.compile(r"[?&]([^=&#\s]+)=([^&#\s]+)")

_redact = Redactor()


@dataclass(frozen=True, slots=True)
class ClientServer:
    """One entry of a client's file. *disabled* is set by a list beside it; *place* names the part of the file."""

    name: str
    entry: Mapping[str, Any]
    disabled: bool = False
    place: str = ""


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """*settings* in the spelling of the configuration, or None if *notes* say why the server was not taken over."""

    name: str
    settings: Mapping[str, Any] | None
    notes: tuple[str, ...]


class Variables:
    """The variables that the written configuration needs.

    References in *texts*, the whole file, keep their names. *inputs* describes, in the client's words, the values that
    the client asks its user for.
    """

    def __init__(self, texts: Iterable[str], inputs: Mapping[str, str]) -> None:
        # By name the description of the value, never the value.
        self.descriptions: dict[str, str] = {}
        self._inputs = inputs
        self._secrets: dict[tuple[str, str], str] = {}
        self._values: dict[str, str | None] = {
            _reference_name(match): None for text in texts for match in _REFERENCE.finditer(text)
        }

    def translate(self, text: str, notes: list[str], *, optional: bool) -> str:
        """Spell other clients' references as ours. Those that have no equivalent get a note.

        With *optional* a variable that is not set is empty instead of an error.
        """

        def spell(match: re.Match[str]) -> str:
            if _SEPARATORS & {match["plain"], match["other"]}:
                return "/"
            name, default = _reference_name(match), match["default"]
            if default is not None and _looks_secret(name, default):
                notes.append(f"the default of {name} looks like a secret and was left out")
                default = None
            if match["other"] is not None:
                notes.append(f"{match.group()!r} became the variable {name}")
            if default is None:
                self.descriptions.setdefault(name, self._inputs.get(match["named"] or "", ""))
                default = "" if optional else None
            return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"

        return _REFERENCE.sub(spell, text)

    def secret(self, value: str, wanted: str, server: str, description: str, *, optional: bool) -> str:
        """``${NAME}`` for *value*: the same variable for the same value, never one variable for two values."""
        name, number = _variable_name(wanted), 1
        candidate = self._secrets.get((name, value), name)
        while candidate in self._values and self._values[candidate] != value:
            candidate = f"{_variable_name(server)}_{name}" + (f"_{number}" if number > 1 else "")
            number += 1
        self._values[candidate] = value
        self._secrets[name, value] = candidate
        self.descriptions.setdefault(candidate, description)
        return f"${{{candidate}{':-' if optional else ''}}}"


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
    return ImportedServer(name, settings, tuple(reader.notes))


class _NotTaken(Exception):
    """An entry that is no upstream. The text gives the reason."""


class _EntryReader:
    def __init__(self, server: ClientServer, name: str, variables: Variables) -> None:
        entry = dict(server.entry)
        if isinstance(entry.get("transport"), Mapping):  # {"transport": {"type": "stdio", "command": ...}}
            entry |= entry.pop("transport")
        if isinstance(entry.get("command"), Mapping):  # Zed: {"command": {"path": ..., "args": ..., "env": ...}}
            entry |= {("command" if key == "path" else key): value for key, value in entry.pop("command").items()}
        self._entry = entry
        self._name = name
        self._variables = variables
        self._disabled = server.disabled or entry.get("disabled") is True or entry.get("enabled") is False
        self.notes: list[str] = [f"was called {server.name!r}"] if server.name != name else []
        if server.place:
            self.notes.append(f"from {server.place}")

    def settings(self) -> dict[str, Any]:
        """Raises _NotTaken."""
        url = next((self._entry[key] for key in _URLS if isinstance(self._entry.get(key), str)), "")
        command = self._entry.get("command")
        settings: dict[str, Any] = {"name": self._name, **({"enabled": False} if self._disabled else {})}
        if isinstance(command, str) and command.strip():
            settings |= self._local(command)
            self._note_unused(*_URLS, "headers", "requestOptions")
        elif url:
            settings |= self._remote(url)
            self._note_unused("args", "env", "cwd")
        elif self._entry.get("source") == "extension" or "settings" in self._entry:
            raise _NotTaken("an extension of the editor brings this server; there is no command to take over")
        else:
            raise _NotTaken("there is neither a command nor a url")
        self._note_unused(*sorted(self._entry.keys() - _UNDERSTOOD - _WITHOUT_EFFECT))
        return settings

    def _local(self, command: str) -> dict[str, Any]:
        arguments = self._entry.get("args") or []
        if not isinstance(arguments, list):
            raise _NotTaken("args is not a list")
        words = [command, *map(_text, arguments)]
        if not arguments and " " in command.strip() and not _A_PATH.match(command):
            words = _split(command)
            self.notes.append("the command was split into words")
        settings: dict[str, Any] = {"command": self._words(words)}
        if env := self._texts("env"):
            settings["env"] = {key: self._value(key, value, key, f"env {key}") for key, value in env.items()}
        if isinstance(self._entry.get("cwd"), str):
            settings["cwd"] = self._translate(self._entry["cwd"])
        return settings

    def _remote(self, url: str) -> dict[str, Any]:
        settings: dict[str, Any] = {"url": self._url(url, "url")}
        # The transport: a client that does not name it decides by the end of the url.
        kind = str(self._entry.get("type") or self._entry.get("transport") or "").lower()
        if kind == "sse":
            settings["transport"] = "sse"
        elif not kind and _path(url).rstrip("/").endswith("/sse"):
            settings["transport"] = "sse"
            self.notes.append("taken for the older SSE transport, by the end of its url")
        elif kind and kind not in _HTTP:
            self.notes.append(f"type {kind!r} is not known here; taken for streamable HTTP")
        # The headers, in either of two places.
        headers = self._texts("headers")
        options = self._entry.get("requestOptions")
        if isinstance(options, Mapping):
            if isinstance(options.get("headers"), Mapping):
                headers |= {str(key): _text(value) for key, value in options["headers"].items()}
            self.notes += [f"not taken over: requestOptions.{key}" for key in options if key != "headers"]
        if headers:
            settings["headers"] = {key: self._header(key, value) for key, value in headers.items()}
        return settings

    def _words(self, words: list[str]) -> list[str]:
        """The words of a command without secrets: those after ``--token``, in ``--token=``, ``-e TOKEN=`` and
        ``--header "Name: ..."``, and those with a well-known shape."""
        done: list[str] = []
        for before, word in zip(["", *words], words, strict=False):
            flag, equals, value = word.partition("=")
            if before in _HEADER_FLAGS and ":" in word:
                header, _, content = word.partition(":")
                space = " " if content.startswith(" ") else ""
                done.append(f"{header}:{space}{self._header(header, content.strip())}")
            elif equals and before in _ENV_FLAGS:
                done.append(f"{flag}={self._value(flag, value, flag, f'argument {flag}')}")
            elif equals and flag.startswith("-"):
                done.append(f"{flag}={self._argument(flag, value)}")
            elif before.startswith("--") and "=" not in before and not word.startswith("-"):
                done.append(self._argument(before, word))
            else:
                done.append(self._argument("", word))
        return done

    def _header(self, name: str, value: str) -> str:
        found = _SCHEME.fullmatch(value)
        scheme, rest = found.groups() if found else ("", value)
        return scheme + self._value("token" if scheme else name, rest, f"{self._name}_{name}", f"header {name}")

    def _argument(self, flag: str, value: str) -> str:
        """A long argument is more often a package or an id than a secret. Without a flag that names a secret, only a
        well-known shape counts."""
        plain = not _REFERENCE.search(value) and "://" not in value and _redact(value) == value
        if plain and not (_looks_secret(flag, "x") and _looks_secret(flag, value)):
            return value
        return self._value(flag, value, f"{self._name}_{flag or 'argument'}", f"argument {flag}".strip())

    def _value(self, name: str, value: str, wanted: str, description: str) -> str:
        """*value* with a variable in place of the secret in it."""
        if _REFERENCE.search(value) or "://" in value:
            return self._url(value, description)
        return self._secret(value, wanted, description) if _looks_secret(name, value) else value

    def _url(self, url: str, description: str) -> str:
        if _REFERENCE.search(url):
            return self._translate(url)
        # Passwords and secret query parameters, in the order of the url.
        spans = [(*match.span(match.lastindex or 0), "password") for match in _IN_URL.finditer(url)]
        spans += [(*match.span(2), match[1]) for match in _IN_QUERY.finditer(url) if _looks_secret(match[1], match[2])]
        done, at = "", 0
        for start, end, name in sorted(spans):
            if start >= at:
                secret = self._secret(url[start:end], f"{self._name}_{name}", f"{name} in {description}")
                done, at = done + url[at:start] + secret, end
        return done + url[at:]

    def _secret(self, value: str, wanted: str, description: str) -> str:
        about = f"{description} of {self._name}"
        return self._variables.secret(value, wanted, self._name, about, optional=self._disabled)

    def _translate(self, text: str) -> str:
        return self._variables.translate(text, self.notes, optional=self._disabled)

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
        self.notes += [f"not taken over: {key}.{name}, which is not text" for name in given if name not in texts]
        return {str(name): text for name, text in texts.items()}

    def _note_unused(self, *keys: str) -> None:
        given = [key for key in keys if self._entry.get(key) not in (None, "", [], {})]
        if given:
            self.notes.append(f"not taken over: {', '.join(given)}")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _path(url: str) -> str:
    try:
        return urlsplit(url).path
    except ValueError:
        return ""


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return [command]


def _without_variables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with a placeholder for variables in the url, so that the rest can be validated."""
    url = re.sub(r"\$\{[^}]*\}", "variable", settings.get("url", ""))
    return {**settings, "url": "http://variable" if url.startswith("variable") else url}


def _looks_secret(name: str, value: str) -> bool:
    """Judges by shape and name. Numbers, switches, paths and addresses are no secrets."""
    if _redact(value) != value:
        return True
    if not value or _PLAIN.fullmatch(value) or _ADDRESS.match(value):
        return False
    return bool(SECRET_NAME.search(name) or _LONG.fullmatch(value))


def _reference_name(match: re.Match[str]) -> str:
    found = next(match[group] for group in _NAMES if match[group] is not None)
    if found in _SPECIAL:
        return _SPECIAL[found]
    kept = match["kind"] != "input" and re.fullmatch(r"[A-Za-z_]\w*", found, re.ASCII)
    return found if kept else _variable_name(found)


def _variable_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "VALUE"
    return f"_{name}" if name[0].isdigit() else name

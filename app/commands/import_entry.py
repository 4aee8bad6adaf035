"""What one server of a client's file is as an upstream of ours (W-IMPORT).

Nothing is dropped without a word: what we do not know, or cannot do, is among the notes.
"""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError

from app.commands.client_config import ClientServer
from app.commands.import_values import Variables, has_reference, is_known_secret, looks_secret, split_scheme, split_url
from wicketgate.config.settings import UpstreamSettings

_URLS = ("url", "serverUrl", "httpUrl")
_HTTP = frozenset({"http", "streamable-http", "streamablehttp", "streamable_http"})
_UNDERSTOOD = frozenset(
    {"command", "args", "env", "cwd", *_URLS, "headers", "type", "transport", "requestOptions", "disabled", "enabled"}
)
# They say nothing that we would have to do.
_PASSED_OVER = frozenset({"name", "source", "description", "schema", "version"})
_HEADER_FLAGS = frozenset({"--header", "-H"})
_ENV_FLAGS = frozenset({"-e", "--env"})
_A_PATH = re.compile(r"[/\\~.]|[A-Za-z]:\\")


@dataclass(frozen=True, slots=True)
class ImportedServer:
    """*settings* as the configuration spells them; None when it could not be taken over, and *notes* say why."""

    name: str
    settings: Mapping[str, Any] | None
    notes: tuple[str, ...]


def import_entry(server: ClientServer, name: str, variables: Variables) -> ImportedServer:
    """*name* is the one that it has here."""
    reader = _Reader(server, name, variables)
    try:
        settings = reader.settings()
    except _NotOurs as reason:
        return ImportedServer(name, None, (*reader.notes, str(reason)))
    try:
        UpstreamSettings.model_validate(_filled(settings))
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(map(str, fault["loc"]))
        what = fault["msg"].removeprefix("Value error, ")
        return ImportedServer(name, None, (*reader.notes, f"{where}: {what}" if where else what))
    return ImportedServer(name, settings, tuple(reader.notes))


class _NotOurs(Exception):
    """The text says why an entry is no upstream."""


class _Reader:
    def __init__(self, server: ClientServer, name: str, variables: Variables) -> None:
        entry = dict(server.entry)
        if isinstance(entry.get("transport"), Mapping):  # {"transport": {"type": "stdio", "command": ...}}
            entry |= entry.pop("transport")
        if isinstance(entry.get("command"), Mapping):  # Zed: {"command": {"path": ..., "args": ..., "env": ...}}
            entry |= {("command" if key == "path" else key): value for key, value in entry.pop("command").items()}
        self._entry = entry
        self._name = name
        self._variables = variables
        self._off = server.disabled or entry.get("disabled") is True or entry.get("enabled") is False
        self.notes: list[str] = [f"was called {server.name!r}"] if server.name != name else []
        if server.place:
            self.notes.append(f"from {server.place}")

    def settings(self) -> dict[str, Any]:
        """Raises _NotOurs."""
        url = next((self._entry[key] for key in _URLS if isinstance(self._entry.get(key), str)), "")
        command = self._entry.get("command")
        settings: dict[str, Any] = {"name": self._name}
        if self._off:
            settings["enabled"] = False
        if isinstance(command, str) and command.strip():
            settings |= self._local(command)
            self._not_taken(*_URLS, "headers", "requestOptions")
        elif url:
            settings |= self._remote(url)
            self._not_taken("args", "env", "cwd")
        elif self._entry.get("source") == "extension" or "settings" in self._entry:
            raise _NotOurs("an extension of the editor brings this server; there is no command to take over")
        else:
            raise _NotOurs("there is neither a command nor a url")
        self._not_taken(*sorted(self._entry.keys() - _UNDERSTOOD - _PASSED_OVER))
        return settings

    def _local(self, command: str) -> dict[str, Any]:
        arguments = self._entry.get("args") or []
        if not isinstance(arguments, list):
            raise _NotOurs("args is not a list")
        words = [command, *map(_text, arguments)]
        if not arguments and " " in command.strip() and not _A_PATH.match(command):
            words = _split(command)
            self.notes.append("the command was split into words")
        settings: dict[str, Any] = {"command": self._words(words)}
        if env := self._texts("env"):
            settings["env"] = {key: self._value(key, value, key, f"env {key}") for key, value in env.items()}
        if isinstance(self._entry.get("cwd"), str):
            settings["cwd"] = self._translated(self._entry["cwd"])
        return settings

    def _remote(self, url: str) -> dict[str, Any]:
        kind = str(self._entry.get("type") or self._entry.get("transport") or "").lower()
        settings: dict[str, Any] = {"url": self._address(url, "url")}
        if kind == "sse":
            settings["transport"] = "sse"
        elif not kind and _path(url).rstrip("/").endswith("/sse"):
            settings["transport"] = "sse"
            self.notes.append("taken for the older SSE transport, by the end of its url")
        elif kind and kind not in _HTTP:
            self.notes.append(f"type {kind!r} is not known here; taken for streamable HTTP")
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
        """Secrets after ``--token``, in ``--token=``, ``-e TOKEN=`` and ``--header "Name: ..."``, or by their shape."""
        done: list[str] = []
        for place, word in enumerate(words):
            before = words[place - 1] if place else ""
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
        scheme, rest = split_scheme(value)
        return scheme + self._value("token" if scheme else name, rest, f"{self._name}_{name}", f"header {name}")

    def _argument(self, flag: str, value: str) -> str:
        """A long argument is more often a package or an id than a secret: without a flag that says so, only a
        well-known shape counts."""
        plain = not has_reference(value) and "://" not in value and not is_known_secret(value)
        if plain and not (looks_secret(flag, "x") and looks_secret(flag, value)):
            return value
        return self._value(flag, value, f"{self._name}_{flag or 'argument'}", f"argument {flag}".strip())

    def _value(self, name: str, value: str, wanted: str, told: str) -> str:
        """*value* with a variable in place of what is secret in it."""
        if has_reference(value):
            return self._translated(value)
        if "://" in value:
            return self._address(value, told)
        if looks_secret(name, value):
            return self._variables.secret(value, wanted, self._name, f"{told} of {self._name}", default=self._off)
        return value

    def _address(self, url: str, told: str) -> str:
        if has_reference(url):
            return self._translated(url)
        done = ""
        for part, secret in split_url(url):
            if secret:
                what = f"{secret} in {told} of {self._name}"
                part = self._variables.secret(part, f"{self._name}_{secret}", self._name, what, default=self._off)
            done += part
        return done

    def _translated(self, text: str) -> str:
        return self._variables.translate(text, self.notes, default=self._off)

    def _texts(self, key: str) -> dict[str, str]:
        given = self._entry.get(key) or {}
        if isinstance(given, list):  # ["Authorization: Bearer ..."], ["A=b"]
            pairs = [str(each).partition(":" if key == "headers" else "=") for each in given]
            return {name.strip(): value.strip() for name, _, value in pairs if name.strip()}
        if not isinstance(given, Mapping):
            self._not_taken(key)
            return {}
        self.notes += [
            f"not taken over: {key}.{name}, which is not text" for name in given if not _is_text(given[name])
        ]
        return {str(name): _text(value) for name, value in given.items() if _is_text(value)}

    def _not_taken(self, *keys: str) -> None:
        given = [key for key in keys if self._entry.get(key) not in (None, "", [], {})]
        if given:
            self.notes.append(f"not taken over: {', '.join(given)}")


def _is_text(value: object) -> bool:
    return isinstance(value, str | int | float)


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


def _filled(settings: Mapping[str, Any]) -> dict[str, Any]:
    """With something in place of the variables, to see whether the rest is valid."""
    url = re.sub(r"\$\{[^}]*\}", "variable", settings.get("url", ""))
    if url.startswith("variable"):
        url = "http://variable"
    return {**settings, "url": url}

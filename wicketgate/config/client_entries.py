"""Reads servers as MCP clients write them: ``mcpServers``, and ``command`` with ``args`` (OPS-61 to OPS-63).

The result is entries of ``upstreams``. What has one meaning only is taken; for the rest the fault says what to write.
A fault names the place as the user wrote it, which ``Spread.places`` keeps.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

_MAX_NAME_CHARS = 64
_MOST_READ = 1_000
_NAME = re.compile(r"[a-z](?:[a-z0-9-]|_(?!_|$)){0,63}")

MCP_SERVERS = "mcpServers"

Loc = tuple[int | str, ...]

_URLS = ("serverUrl", "httpUrl")
# By the word of a client, our transport; None for a server that is started.
_TYPES: Mapping[str, str | None] = {
    "stdio": None,
    "local": None,
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
}
_REMARKS = ("description",)


@dataclass(slots=True)
class Spread:
    """*faults* are lines such as ``mcpServers.time.args: must be a list``. *places* has by place in *upstreams* what
    the user wrote there."""

    faults: list[str] = field(default_factory=list)
    places: dict[Loc, str] = field(default_factory=dict)


def legal_name(name: str, used: Collection[str] = ()) -> str:
    """Returns *name* changed to a legal name of an upstream that is none of *used*."""
    legal = re.sub(r"_{2,}", "_", re.sub(r"[^a-z0-9_-]+", "-", name[:_MOST_READ].lower())).strip("-_")
    if not legal[:1].isalpha():
        legal = f"server-{legal}".strip("-")
    number, suffix = 1, ""
    while (candidate := legal[: _MAX_NAME_CHARS - len(suffix)].rstrip("-_") + suffix) in used:
        number += 1
        suffix = f"-{number}"
    return candidate


def spread_entries(values: dict[str, Any]) -> Spread:
    """Changes *values*, the file as read with its variables in place: ``mcpServers`` goes into ``upstreams``."""
    spread = Spread()
    listed = values.get("upstreams")
    if isinstance(listed, list):
        listed = [
            _Entry(entry, ("upstreams", index), f"upstreams[{index}]", spread).translate()
            if isinstance(entry, dict)
            else entry
            for index, entry in enumerate(listed)
        ]
        values["upstreams"] = listed
    if MCP_SERVERS not in values:
        return spread
    servers = values.pop(MCP_SERVERS)
    if not isinstance(servers, dict):
        spread.faults.append(f"{MCP_SERVERS}: must be a section with a name for each server: time: {{command: ...}}")
        return spread
    if listed is None:
        listed = values.setdefault("upstreams", [])
    if isinstance(listed, list):
        _add(servers, listed, spread)
    return spread


def _add(servers: Mapping[str, Any], listed: list[Any], spread: Spread) -> None:
    names = (
        {entry["name"]: index for index, entry in enumerate(listed) if isinstance(entry.get("name"), str)}
        if all(isinstance(entry, dict) for entry in listed)
        else {}
    )
    for name, entry in servers.items():
        at = f"{MCP_SERVERS}.{name}"
        if not isinstance(entry, dict):
            spread.faults.append(f"{at}: must be a section with keys")
            continue
        if name in names:
            spread.faults.append(f"{at}: upstreams[{names[name]}] has this name too; rename one of them")
            continue
        if not _NAME.fullmatch(name):
            spread.faults.append(
                f"{at}: this name cannot be the namespace of tools; write {legal_name(name, {*names, *servers})}"
            )
            continue
        here: Loc = ("upstreams", len(listed))
        spread.places[here] = at
        listed.append({"name": name, **_Entry(entry, here, at, spread, name).translate()})


class _Entry:
    """*name* is that of the key above, if the entry stands under one."""

    def __init__(self, entry: Mapping[str, Any], here: Loc, at: str, spread: Spread, name: str | None = None) -> None:
        self._entry = dict(entry)
        self._here = here
        self._at = at
        self._spread = spread
        self._name = name

    def translate(self) -> dict[str, Any]:
        """Returns the entry in our spelling. What is wrong in ours is left for the check of the settings."""
        if self._name is not None:
            for key in _REMARKS:
                self._entry.pop(key, None)
            if self._entry.pop("name", self._name) != self._name:
                self._fault("name", "the key above is the name already; leave this one out")
        self._words()
        self._url()
        self._transport()
        self._switch()
        return self._entry

    def _fault(self, key: str, text: str) -> None:
        self._spread.faults.append(f"{self._at}.{key}: {text}")

    def _written(self, place: Loc, text: str) -> None:
        self._spread.places[(*self._here, *place)] = f"{self._at}.{text}"

    def _words(self) -> None:
        command = self._entry.get("command")
        arguments = self._entry.pop("args", None)
        if arguments is not None and not isinstance(arguments, list):
            self._fault("args", "must be a list, one word each")
            arguments = []
        if isinstance(command, str):
            if not command.strip():
                self._fault("command", "is empty: give the program to start")
            elif arguments is None and re.search(r"\s", command.strip()):
                # Splitting it would need the rules of one shell, and would cut values of variables too.
                self._fault("command", _one_text(command))
            self._entry["command"] = command = [command.strip() or "-"]
            self._written(("command", 0), "command")
        if not arguments:
            return
        if not isinstance(command, list):
            if command is None:
                self._fault("args", "belongs to command, the program to start, and there is none")
            return
        for index in range(len(arguments)):
            self._written(("command", len(command) + index), f"args[{index}]")
        self._entry["command"] = [*command, *arguments]

    def _url(self) -> None:
        for key in _URLS:
            if key not in self._entry:
                continue
            url = self._entry.pop(key)
            if "url" in self._entry:
                self._fault(key, "says the same as url; give one of them")
            else:
                self._entry["url"] = url
                self._written(("url",), key)

    def _transport(self) -> None:
        given = {key: self._entry.pop(key) for key in ("type", "transport") if key in self._entry}
        kinds = set[str | None]()
        for key, word in given.items():
            kind = word.lower() if isinstance(word, str) else ""
            if kind not in _TYPES:
                self._fault(key, "must be http or sse" if key == "transport" else "must be stdio, http or sse")
            elif _TYPES[kind] is None and "command" not in self._entry:
                self._fault(key, f"{kind} is a server that is started: give command, not url")
            elif key == "type" and _TYPES[kind] is not None and "url" not in self._entry and "command" in self._entry:
                self._fault(key, f"{kind} belongs to url, not to command")
            else:
                kinds.add(_TYPES[kind])
        if len(kinds) > 1:
            self._fault("type", "and transport differ; give one of them")
        if "sse" in kinds:
            self._entry["transport"] = "sse"
        url = self._entry.get("url")
        if not given and self._name is not None and isinstance(url, str) and path_of(url).endswith("/sse"):
            self._entry["transport"] = "sse"  # clients without a word for the transport find out in the same way

    def _switch(self) -> None:
        if "disabled" not in self._entry:
            return
        disabled = self._entry.pop("disabled")
        if not isinstance(disabled, bool):
            self._fault("disabled", "must be true or false")
        elif "enabled" in self._entry:
            self._fault("disabled", "says the same as enabled; give one of them")
        else:
            self._entry["enabled"] = not disabled


def _one_text(command: str) -> str:
    """Says how to write the words. Shows the program only, since a secret may follow it."""
    first, *others = command.split()
    shown = first if re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", first) else "..."
    return f"one text with blanks is not split into words; write a list: [{', '.join([shown, *['...'] * len(others)])}]"


def path_of(url: str) -> str:
    """The path of *url*, without a slash at its end."""
    try:
        return urlsplit(url).path.rstrip("/")
    except ValueError:
        return ""

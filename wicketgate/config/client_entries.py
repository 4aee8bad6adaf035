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
TRANSPORTS: Mapping[str, str | None] = {
    "stdio": None,
    "local": None,
    "http": "http",
    "streamable-http": "http",
    "streamablehttp": "http",
    "streamable_http": "http",
    "remote": "http",
    "sse": "sse",
}


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
        for index, entry in enumerate(listed):
            if isinstance(entry, dict):
                listed[index] = _translated(entry, ("upstreams", index), f"upstreams[{index}]", spread)
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
    names = {str(entry.get("name")): index for index, entry in enumerate(listed) if isinstance(entry, dict)}
    for name, entry in servers.items():
        at = f"{MCP_SERVERS}.{name}"
        if not isinstance(entry, dict):
            spread.faults.append(f"{at}: must be a section with keys")
        elif name in names:
            spread.faults.append(f"{at}: upstreams[{names[name]}] has this name too; rename one of them")
        elif not _NAME.fullmatch(name):
            unused = legal_name(name, {*names, *servers})
            spread.faults.append(f"{at}: this name cannot be the namespace of tools; write {unused}")
        elif entry.get("name", name) != name:
            spread.faults.append(f"{at}.name: the key above is the name already; leave this one out")
        else:
            here: Loc = ("upstreams", len(listed))
            spread.places[here] = at
            entry = {key: value for key, value in entry.items() if key not in ("name", "description")}
            listed.append({"name": name, **_translated(entry, here, at, spread, of_client=True)})


def _translated(
    entry: Mapping[str, Any], here: Loc, at: str, spread: Spread, *, of_client: bool = False
) -> dict[str, Any]:
    """Returns the entry in our spelling. What cannot be translated is left for the check of the settings."""
    ours = dict(entry)
    faults = _translate_command(ours, here, at, spread.places)
    for key in filter(ours.__contains__, _URLS):
        if "url" in ours:
            faults[key] = "says the same as url; give one of them"
        else:
            ours["url"] = ours[key]
            spread.places[*here, "url"] = f"{at}.{key}"
        del ours[key]
    faults |= _translate_transport(ours, of_client=of_client)
    disabled = ours.pop("disabled", None)
    if disabled is not None and (not isinstance(disabled, bool) or "enabled" in ours):
        faults["disabled"] = "must be true or false, without enabled beside it"
    elif disabled is not None:
        ours["enabled"] = not disabled
    spread.faults += [f"{at}.{key}: {fault}" for key, fault in faults.items()]
    return ours


def _translate_command(ours: dict[str, Any], here: Loc, at: str, places: dict[Loc, str]) -> dict[str, str]:
    """Makes one list of ``command`` and ``args``. Returns faults by key."""
    command, arguments = ours.get("command"), ours.pop("args", None)
    if isinstance(command, str) and arguments is None and re.search(r"\s", command.strip()):
        # Splitting it would need the rules of one shell, and would cut values of variables too.
        ours["command"] = [command]
        return {"command": _one_text(command)}
    if isinstance(command, str):
        command = ours["command"] = [command.strip()]
        places[*here, "command", 0] = f"{at}.command"
    if not isinstance(arguments, list):
        return {} if arguments is None else {"args": "must be a list, one word each"}
    if isinstance(command, list):
        ours["command"] = [*command, *arguments]
        places |= {
            (*here, "command", len(command) + number): f"{at}.args[{number}]" for number in range(len(arguments))
        }
    elif arguments and command is None:
        return {"args": "belongs to command, the program to start, and there is none"}
    return {}


def _translate_transport(ours: dict[str, Any], *, of_client: bool) -> dict[str, str]:
    """Makes ``transport`` of the words for it. Returns faults by key."""
    faults: dict[str, str] = {}
    kinds = {key: TRANSPORTS.get(str(ours.pop(key)).lower(), "") for key in ("type", "transport") if key in ours}
    for key, kind in kinds.items():
        if kind == "":
            faults[key] = "must be http or sse" if key == "transport" else "must be stdio, http or sse"
        elif kind is None and "command" not in ours:
            faults[key] = "such a server is started: give command, not url"
        elif kind and key == "type" and "url" not in ours and "command" in ours:
            faults[key] = f"{kind} belongs to url, not to command"
    if faults:
        return faults
    if len({*kinds.values()}) > 1:
        faults["type"] = "and transport differ; give one of them"
    url = ours.get("url")
    # Clients without a word for the transport look at the url too.
    ends_in_sse = of_client and not kinds and isinstance(url, str) and path_of(url).endswith("/sse")
    if ends_in_sse or "sse" in kinds.values():
        ours["transport"] = "sse"
    return faults


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

"""From a ``server.json`` of the MCP registry to one of our upstreams (OPS-581 to OPS-584).

Its words are a stranger's: none becomes a reference of our configuration, an option of the program that starts it, or a
character that moves a cursor. Nothing here reads files or asks anyone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from app.commands.import_variables import variable_name
from wicketgate.config.client_entries import legal_name
from wicketgate.config.settings import UpstreamSettings
from wicketgate.config.settings.base import LOOPBACK_HOSTS
from wicketgate.net import origin

_MAX_CHARS = 1_000
_RUNNERS: Mapping[str, Sequence[str]] = {
    "npm": ("npx", "-y"),
    "pypi": ("uvx",),
    "oci": ("docker", "run", "-i", "--rm"),
}
_IDENTIFIERS = {
    "npm": re.compile(r"(?:@[a-z0-9~][a-z0-9._~-]*/)?[a-z0-9~][a-z0-9._~-]*"),
    "pypi": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"),
    "oci": re.compile(r"[a-z0-9][a-z0-9._/:-]*(?:@sha256:[0-9a-f]{64})?"),
}
_VERSION = re.compile(r"[0-9][A-Za-z0-9.+_-]*")
_NPM_VERSION = re.compile(r"[0-9]+\.[0-9]+\.[0-9]+(?:[-+][A-Za-z0-9.+-]+)?")
"""Others are ranges."""
_TAG = re.compile(r"[^/]:(?!latest$)[A-Za-z0-9_][A-Za-z0-9._-]*$")
_OPTION = re.compile(r"--?[A-Za-z0-9][A-Za-z0-9._-]*")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_RUNNERS = re.compile(
    r"(?:npm_|node_|uv_|pip_|python|docker_|ld_|dyld_|bash).*|path|home|env|shell|tmpdir|.*_proxy", re.IGNORECASE
)
"""Variables that the programs that start servers read too: from where they load, and what they run."""
_HEADER_NAME = re.compile(r"[A-Za-z0-9-]+")
_USUAL = frozenset({"-y", "--yes", "-i", "--interactive", "--rm"})
"""Options of the programs that start servers; they are given anyway."""
_VARIABLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_-]*)\}")


class NotAddable(Exception):
    """The reason, for the person who asked."""


@dataclass(frozen=True, slots=True)
class FoundServer:
    """*settings* are those of an upstream, with ``${NAME}`` for each of *variables*, which have descriptions. *skipped*
    are optional values that got none."""

    origin: str
    version: str
    description: str
    settings: dict[str, Any]
    variables: Mapping[str, str]
    skipped: Sequence[str]


def read_server(document: object, *, name: str = "", remote: bool = False) -> FoundServer:
    """Reads a ``server.json``, or the answer of a registry that holds one. *name*: that of the upstream. *remote*
    prefers the server at a URL to the package. Raises NotAddable."""
    whole = _object(document, "the document")
    notes = _object(whole.get("_meta") or {}, "_meta").values()
    if any(isinstance(each, Mapping) and each.get("status") == "deleted" for each in notes):
        raise NotAddable("the registry has withdrawn it")
    whole = _object(whole["server"], "server") if "server" in whole else whole
    origin_name, version = _text(whole, "name"), _text(whole, "version")
    packages, remotes = _list(whole, "packages"), _list(whole, "remotes")
    settings: dict[str, Any] = {"name": legal_name(name or origin_name.rpartition("/")[2])}
    values = _Values(settings["name"])
    if remotes and (remote or not packages):
        settings |= _at_url(remotes, values)
    elif packages:
        settings |= _package(packages, values)
    else:
        raise NotAddable("it names neither a package nor a URL")
    try:
        UpstreamSettings.model_validate(settings)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        raise NotAddable(f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}") from None
    described = whole.get("description")
    return FoundServer(
        origin_name,
        version,
        described if isinstance(described, str) else "",
        settings,
        values.variables,
        values.skipped,
    )


@dataclass(slots=True)
class _Values:
    """The values that a server wants, as texts of our configuration. *upstream* is in the name of each variable, so
    that no document picks one that exists for something else."""

    upstream: str
    variables: dict[str, str] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)

    def of(self, given: Mapping[str, Any], name: str) -> str | None:
        """Returns None for an optional value without a default."""
        value = given.get("value")
        if value is None and not given.get("isSecret"):
            value = given.get("default")
        if value is None and (given.get("isRequired") or given.get("isSecret")):
            return self._reference(name, given)
        if value is None:
            self.skipped.append(name)
            return None
        return self.filled(_plain(_word(value, name), name), given.get("variables") or {})

    def filled(self, text: str, variables: object) -> str:
        """Puts a reference in place of each ``{name}`` that *variables* describe."""
        known = _object(variables, "variables")
        return _VARIABLE.sub(lambda found: self._filled(found[0], found[1], known.get(found[1])), text)

    def _filled(self, whole: str, name: str, given: object) -> str:
        if given is None:
            return whole
        filled = self.of({"isRequired": True, **_object(given, name), "variables": {}}, name)
        assert filled is not None
        return filled

    def _reference(self, name: str, given: Mapping[str, Any]) -> str:
        variable = variable_name(f"MCP_{self.upstream}_{_plain(name, 'a name')}")
        described = given.get("description")
        secret = "secret" if given.get("isSecret") else ""
        words = (secret, described if isinstance(described, str) else "")
        self.variables[variable] = ": ".join(filter(None, words))
        return f"${{{variable}}}"


def _package(packages: Sequence[object], values: _Values) -> dict[str, Any]:
    found = [_object(each, "packages") for each in packages]
    package = next((each for each in found if str(each.get("registryType")) in _RUNNERS), None)
    if package is None:
        kinds = ", ".join(sorted({str(each.get("registryType"))[:20] for each in found}))
        raise NotAddable(f"packages of {', '.join(_RUNNERS)} can be started, not {kinds}")
    kind = _text(package, "registryType")
    if _object(package.get("transport") or {"type": "stdio"}, "transport").get("type") != "stdio":
        raise NotAddable("its package is a server over HTTP: start it by yourself, and add its URL by hand")
    for each in _list(package, "runtimeArguments"):
        option = _object(each, "runtimeArguments")
        wanted = option.get("name") or option.get("value")
        if not isinstance(wanted, str) or wanted not in _USUAL or (option.get("name") and option.get("value")):
            raise NotAddable(f"it wants the option {str(wanted)[:60]} of {_RUNNERS[kind][0]}: add it by hand")
    env = dict(_environment(_list(package, "environmentVariables"), values))
    words = [*_RUNNERS[kind]]
    if kind == "oci":
        words += [word for name in env for word in ("-e", name)]
    words += [_pinned(kind, package), *_arguments(_list(package, "packageArguments"), values)]
    return {"command": words, **({"env": env} if env else {})}


def _pinned(kind: str, package: Mapping[str, Any]) -> str:
    """Returns the package in exactly one version. Raises NotAddable."""
    identifier, version = _text(package, "identifier"), package.get("version")
    if not _IDENTIFIERS[kind].fullmatch(identifier):
        raise NotAddable(f"not the name of a package of {kind}: {identifier[:100]}")
    if kind == "oci" and ("@sha256:" in identifier or _TAG.search(identifier)):
        return identifier
    if kind == "oci" and ":" in identifier.rpartition("/")[2]:
        raise NotAddable(f"its container {identifier} could change")
    if not isinstance(version, str) or not (_NPM_VERSION if kind == "npm" else _VERSION).fullmatch(version):
        raise NotAddable(f"its package {identifier} has no version of its own, so that it could change: {version}")
    return f"{identifier}:{version}" if kind == "oci" else f"{identifier}@{version}"


def _arguments(given: Sequence[object], values: _Values) -> Iterator[str]:
    for number, each in enumerate(given, 1):
        argument = _object(each, "packageArguments")
        option = argument.get("name") if argument.get("type") == "named" else None
        if option is not None and not (isinstance(option, str) and _OPTION.fullmatch(option)):
            raise NotAddable(f"not the name of an option: {str(option)[:60]}")
        flag = (
            option is not None
            and not {"value", "default", "isRequired", "valueHint", "format", "choices", "placeholder"}
            & argument.keys()
        )
        value = None if flag else values.of(argument, option or str(argument.get("valueHint") or f"ARGUMENT_{number}"))
        if option is not None and (flag or value is not None):
            yield option
        if value is not None:
            yield value


def _environment(given: Sequence[object], values: _Values) -> Iterator[tuple[str, str]]:
    for each in given:
        variable = _object(each, "environmentVariables")
        name = _text(variable, "name")
        if not _ENV_NAME.fullmatch(name):
            raise NotAddable(f"not the name of a variable: {name[:60]}")
        if _OF_RUNNERS.fullmatch(name):
            raise NotAddable(f"it sets {name[:60]}, which the program that starts it reads too: add it by hand")
        if (value := values.of(variable, name)) is not None:
            yield name, value


def _at_url(remotes: Sequence[object], values: _Values) -> dict[str, Any]:
    found = [_object(each, "remotes") for each in remotes]
    transports = {"streamable-http": "http", "sse": "sse"}
    remote = next((each for kind in transports for each in found if each.get("type") == kind), None)
    if remote is None:
        raise NotAddable("its URL is of no transport that is known here")
    url = values.filled(_plain(_text(remote, "url"), "url"), remote.get("variables") or {})
    try:
        scheme, host, _ = origin(url)
    except ValueError:
        raise NotAddable("its URL is not valid") from None
    if "$" in host or not (scheme == "https" or (scheme == "http" and host in LOOPBACK_HOSTS)):
        raise NotAddable("its URL does not begin with https:// and a host")
    headers: dict[str, str] = {}
    for each in _list(remote, "headers"):
        header = _object(each, "headers")
        name = _text(header, "name")
        if not _HEADER_NAME.fullmatch(name):
            raise NotAddable(f"not the name of a header: {name[:60]}")
        if (value := values.of(header, name)) is not None:
            headers[name] = value
    kind = transports[_text(remote, "type")]
    return {"url": url, **({} if kind == "http" else {"transport": kind}), **({"headers": headers} if headers else {})}


def _object(value: object, what: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise NotAddable(f"{what} is not an object")
    return value


def _list(whole: Mapping[str, Any], key: str) -> Sequence[object]:
    value = whole.get(key) or []
    if not isinstance(value, list) or len(value) > 100:
        raise NotAddable(f"{key} is not a list of at most 100")
    return value


def _text(whole: Mapping[str, Any], key: str) -> str:
    value = whole.get(key)
    if not isinstance(value, str) or not value:
        raise NotAddable(f"it has no {key}")
    return _plain(value, key)


def _word(value: object, what: str) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise NotAddable(f"{what[:60]} is neither a text nor a number")
    return str(value)


def _plain(text: str, what: str) -> str:
    """Returns *text*, if it stays what it is in a configuration and in a terminal: ``${cmd:...}`` would be run."""
    if len(text) > _MAX_CHARS or not text.isprintable() or "$" in text:
        raise NotAddable(f"{what} has a $, a control character, or more than {_MAX_CHARS} characters")
    return text

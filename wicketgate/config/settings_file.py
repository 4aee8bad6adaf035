"""Reads the configuration: the file, then variables, then the command line, checked as one.

Variables and references to secrets are put in place everywhere in the file. Servers as MCP clients write them become
upstreams (``client_entries``). Variables such as ``WICKETGATE_SERVER__PORT=9090`` (their values are YAML) override it,
and the command line overrides both. A mistake stops the start with one line that names the field (``faults``).
"""

import logging
import os
import re
import shlex
import stat
from collections.abc import Collection, Mapping
from contextlib import suppress
from copy import deepcopy
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wicketgate.config.careless import careless
from wicketgate.config.client_entries import Loc, spread_entries
from wicketgate.config.faults import faults
from wicketgate.config.secret_references import fetch_secret
from wicketgate.config.settings import Settings
from wicketgate.config.settings.base import is_secret_name
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import NotYaml, read_yaml

log = logging.getLogger("wicketgate.configuration")

_PREFIX = "WICKETGATE_"
_FILE_VARIABLE = "WICKETGATE_CONFIG"
_USUAL_FILE = Path("wicketgate.yaml")
_MOST_NAMES = 3

# Variables with the prefix that are no settings: ours, and those that Kubernetes puts into every container of a
# namespace that has a service called "wicketgate".
_OF_OTHERS = re.compile(
    r"WICKETGATE_(?:CONFIG|CONFORM_KEY|SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)=.*"
    r"|WICKETGATE_PORT=\w+://.*",
    re.DOTALL,
)

# ${env:VAR} is how MCP clients write it.
_ANY = re.compile(r"\$\{(?:((?:file|cmd|keyring):[^}]+)|(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?)\}")
_OF_CLIENTS = re.compile(r"\$\{input:|\$\{\{\s*(?:secrets|env|inputs|vars)\.")
_BARE = re.compile(r"\$([A-Z_][A-Z0-9_]*)")


def load_settings(
    path: Path | None, environ: Mapping[str, str] | None = None, *, server: Mapping[str, Any] | None = None
) -> Settings:
    """Reads and checks *path*; None leaves defaults and environment. Raises ConfigError, one line per fault.

    *server* holds keys of that section from the command line; they override everything.
    """
    environ = os.environ if environ is None else environ
    # The file, with its variables.
    text = "" if path is None else _read(path)
    values = {} if path is None else _sections(text, path)
    variables = _Variables(environ)
    # Most files have none, and to look into each value of thousands of keys takes long. An escape may write a "$".
    if "$" in text or "\\" in text:
        values = variables.put_into(values)
    # Variables and the command line over it.
    origins: dict[Loc, str] = {}
    for name in settings_variables(environ):
        _override(values, name, _yaml(environ[name], f"the environment variable {name}"), origins)
    for key, value in (server or {}).items():
        _override(values, f"{_PREFIX}SERVER__{key.upper()}", value, origins, f"--{key}")
    return _checked(values, variables, origins, path)


def settings_from(values: Mapping[str, Any]) -> Settings:
    """Validates *values*, in the form of a configuration file. Expands ``${VAR}``; no environment variable overrides a
    value. Raises ConfigError, one line per fault."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise ConfigError("Invalid configuration: it must be a mapping of sections such as 'server' and 'upstreams'")
    variables = _Variables(os.environ)
    return _checked(variables.put_into(deepcopy(dict(values))), variables, {}, None)


def _checked(values: dict[str, Any], variables: "_Variables", origins: dict[Loc, str], path: Path | None) -> Settings:
    # Servers as clients write them, and the check of the whole, which would name wrong faults without the variables.
    spread = spread_entries(values)
    found = [*variables.faults, *spread.faults]
    if variables.faults:
        raise ConfigError(_lines(found))
    for key in ("from_variables", "from_file"):  # filled in here, never by the file
        if key in values:
            found.append(f"{key}: unknown key")
            del values[key]
    try:
        named = {value: reference for reference, value in variables.fetched.items() if value}
        named |= _perhaps_secret(variables.used, variables.environ)
        settings = Settings(**values, from_variables=named, from_file=path)
    except ValidationError as error:
        found += faults(error, model=Settings, places=spread.places, variables=origins)
    if found:
        raise ConfigError(_lines(found))
    _refuse_changeable(settings)
    return settings


def _refuse_changeable(settings: Settings) -> None:
    """Raises ConfigError for a file that the gate believes and that other users may change."""
    own = {"": settings.from_file, "auth.key_file": settings.auth.key_file, "pins.file": settings.pins.file}
    own["browse.words_file"] = settings.browse.words_file
    others = {"network.ca_file": settings.network.ca_file, "storage.url": settings.storage.sqlite_file}
    documents = {f"upstreams.{each.name}.openapi": each.openapi for each in settings.upstreams}
    files = [(setting, Path(file)) for setting, file in {**own, **others, **documents}.items() if file]
    own_groups = {os.getegid(), *os.getgroups()}
    for setting, file in files:
        with suppress(OSError):
            status = file.stat()
            if may_be_changed(status.st_mode, status.st_gid, own_groups):
                where, mode = f"{setting}: " if setting else "", f"{stat.S_IMODE(status.st_mode):04o}"
                raise ConfigError(
                    f"Invalid configuration: {where}other users may change {file} (mode {mode}); forbid it with: "
                    f"chmod go-w {shlex.quote(str(file))}"
                )


def may_be_changed(mode: int, group: int, own_groups: Collection[int]) -> bool:
    """Returns whether everybody may write the file, or a *group* that is neither root's nor one of this process.

    Owners are not compared: in a container that file belongs to a user of the host.
    """
    everybody, of_group = bool(mode & stat.S_IWOTH), bool(mode & stat.S_IWGRP)
    return stat.S_ISREG(mode) and (everybody or (of_group and group not in {0, *own_groups}))


def unshared(name: str, flags: int) -> int:
    """Opens a file for ``open``; a new one can be changed by its owner only, whatever the umask."""
    return os.open(name, flags, 0o644)


def create_file(path: Path, text: str, mode: int = 0o644) -> None:
    """Creates a file that is whole on the disk. Raises FileExistsError, or another OSError; after that one there is no
    file, because half of it would be in the way of the next try."""
    with open(path, "x", encoding="utf-8", opener=lambda name, flags: os.open(name, flags, mode)) as file:
        try:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        except OSError:
            path.unlink(missing_ok=True)
            raise


def careless_lines(settings: Settings) -> list[str]:
    """Returns a line for each careless setting, and for secrets in a configuration file that other users may read."""
    file, readable = settings.from_file, ""
    with suppress(OSError):
        if file is not None and file.stat().st_mode & stat.S_IROTH:
            readable = file.read_text(encoding="utf-8", errors="replace")
    return [f"{field}: {advice}" for field, advice in careless(settings, readable).items()]


def _lines(found: list[str]) -> str:
    return "\n".join(f"Invalid configuration: {fault}" for fault in found)


def find_config(environ: Mapping[str, str]) -> Path | None:
    """Returns the file that ``WICKETGATE_CONFIG`` names; otherwise ``wicketgate.yaml`` of the working directory, if it
    is there."""
    if named := environ.get(_FILE_VARIABLE):
        return Path(named)
    return _USUAL_FILE if _USUAL_FILE.is_file() else None


def configuration_line(path: Path | None, environ: Mapping[str, str]) -> str:
    """Says which file is in force, who named it, and which variables override it. Shows none of their values."""
    if path is None:
        line = "Configuration: no file, only defaults; wicketgate init writes one"
    elif environ.get(_FILE_VARIABLE) == str(path):
        line = f"Configuration: {path}, named by {_FILE_VARIABLE}"
    else:
        line = f"Configuration: {path if path.is_absolute() else f'./{path}'}"
    names = sorted(settings_variables(environ))
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return f"{line}; overridden by {', '.join(names[:_MOST_NAMES])}{more}" if names else line


def log_configuration(settings: Settings, environ: Mapping[str, str] | None = None) -> None:
    """Logs which file is in force, what in it is careless, and that it has no upstreams."""
    log.info("%s", configuration_line(settings.from_file, os.environ if environ is None else environ))
    for line in careless_lines(settings):
        log.warning("careless: %s", line)
    if line := no_upstreams_line(settings):
        log.warning("%s", line)


def no_upstreams_line(settings: Settings) -> str:
    """Says how to get upstreams if there are none, or none is enabled; otherwise an empty text."""
    if not settings.upstreams:
        return (
            "There are no upstreams, so there are no tools. wicketgate init writes a file with some, wicketgate import "
            "imports those of an MCP client, and an entry under upstreams: adds one by hand"
        )
    if not any(upstream.enabled for upstream in settings.upstreams):
        count = len(settings.upstreams)
        what = "The only upstream is" if count == 1 else f"All {count} upstreams are"
        return f"{what} disabled, so there are no tools; to enable one, set enabled: true or remove the key"
    return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(
            f"Cannot read the configuration file {path}: there is no such file; wicketgate init --config {path} writes "
            "one to start from"
        ) from None
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The configuration file {path} is not UTF-8 text") from None


def _sections(text: str, path: Path) -> dict[str, Any]:
    values = _yaml(text, f"the configuration file {path}")
    if values is None:
        # It may be about to be written. Applied to a running service, it would take away every upstream and key.
        raise ConfigError(f"The configuration file {path} is empty; to start with the defaults, remove it")
    if not isinstance(values, dict):
        raise ConfigError(f"The configuration file {path} must hold sections such as 'server:' and 'upstreams:'")
    return values


def _yaml(text: str, source: str) -> Any:
    try:
        return read_yaml(text, strict=True)
    except NotYaml as error:
        raise ConfigError(f"In {source}, {error}") from None


def settings_variables(environ: Mapping[str, str]) -> list[str]:
    """Returns the names of the variables that override the file."""
    return [
        name
        for name, text in environ.items()
        if name.startswith(_PREFIX) and not _OF_OTHERS.fullmatch(f"{name}={text}")
    ]


def _override(values: dict[str, Any], name: str, value: Any, origins: dict[Loc, str], source: str = "") -> None:
    """Puts *value* where the parts of *name* lead. The check of the whole finds unknown parts."""
    path = tuple(name.removeprefix(_PREFIX).lower().split("__"))
    for section in path[:-1]:
        inner = values.get(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"Invalid configuration: {source or name}: {section} is not a section")
        # A copy, because aliases in the file share what they stand for.
        values[section] = inner = {**inner}
        values = inner
    values[path[-1]] = value
    origins[path] = source or name


class _Variables:
    """Puts variables and references in place. *used* are the names of variables that were set, *fetched* the values by
    their references, *faults* name those that there are not."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = environ
        self.fetched: dict[str, str] = {}
        self.used: set[str] = set()
        self.faults: list[str] = []

    def put_into(self, value: Any, where: str = "") -> Any:
        """Returns *value* with all variables in place, at any depth."""
        if isinstance(value, dict):
            return {
                key: self.put_into(item, f"{where}.{key}" if where else str(key)) if _may_have(item) else item
                for key, item in value.items()
            }
        if isinstance(value, list):
            return [
                self.put_into(item, f"{where}[{index}]") if _may_have(item) else item
                for index, item in enumerate(value)
            ]
        return self._text(value, where) if isinstance(value, str) else value

    def _text(self, text: str, where: str) -> str:
        if _OF_CLIENTS.search(text):
            self.faults.append(f"{where}: this is how another program writes a variable; write ${{NAME}}, and set NAME")
            return text
        if bare := _BARE.fullmatch(text):
            self.faults.append(f"{where}: to read the environment variable {bare[1]}, write ${{{bare[1]}}}")
            return text

        def found(match: re.Match[str]) -> str:
            name: str = match.group(2)
            default: str | None = match.group(3)
            value = self.environ.get(name, default)
            if value is None:
                self.faults.append(f"{where}: {self._not_set(name)}")
                return ""
            if name in self.environ:
                self.used.add(name)
            return value

        def fetched(match: re.Match[str]) -> str:
            reference: str = match.group(1)
            if reference not in self.fetched:
                try:
                    self.fetched[reference] = fetch_secret(reference)
                except ConfigError as error:
                    self.faults.append(f"{where}: {error}")
                    return ""
            return self.fetched[reference]

        # Each is looked for once, so that no value is read as a reference.
        return _ANY.sub(lambda match: fetched(match) if match.group(1) else found(match), text)

    def _not_set(self, name: str) -> str:
        like = get_close_matches(name, self.environ, 1, 0.75)
        meant = f"did you mean {like[0]}? " if like else ""
        return f"the environment variable {name} is not set ({meant}${{{name}:-default}} gives a default)"


def _may_have(value: Any) -> bool:
    """Returns whether a variable may stand in *value*: in few of thousands of texts."""
    return "$" in value if isinstance(value, str) else isinstance(value, dict | list)


_WORD = re.compile("[a-z]{1,12}")


def _perhaps_secret(used: Collection[str], environ: Mapping[str, str]) -> dict[str, str]:
    """The names of variables by their values, without ordinary words (OPS-477). Of two names for one value, the one of
    a secret counts."""
    names = sorted(sorted(used), key=is_secret_name)
    return {environ[name]: name for name in names if is_secret_name(name) or not _WORD.fullmatch(environ[name])}

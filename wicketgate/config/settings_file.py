"""Reads the configuration: the file, then variables, then the command line, checked as one.

``${VAR}`` and ``${VAR:-default}`` are put in place everywhere in the file. Variables such as
``WICKETGATE_SERVER__PORT=9090`` (their values are YAML) override it, and the command line overrides both. A mistake
stops the start with one line that names the field.
"""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.yaml_text import NotYaml, read_yaml

_PREFIX = "WICKETGATE_"
_FILE_VARIABLE = "WICKETGATE_CONFIG"
_USUAL_FILE = Path("wicketgate.yaml")

# Variables with the prefix that are no settings: ours, and those that Kubernetes puts into every container of a
# namespace that has a service called "wicketgate".
_OF_OTHERS = re.compile(
    r"WICKETGATE_(?:CONFIG|CONFORM_KEY|SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_[A-Z]+)?)=.*"
    r"|WICKETGATE_PORT=\w+://.*",
    re.DOTALL,
)

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def load_settings(
    path: Path | None, environ: Mapping[str, str] | None = None, *, server: Mapping[str, Any] | None = None
) -> Settings:
    """Reads and checks *path*; None leaves defaults and environment. Raises ConfigError, one line per fault.

    *server* holds keys of that section from the command line; they override everything.
    """
    environ = os.environ if environ is None else environ
    # The file, with its variables.
    values = {} if path is None else _read_yaml(path)
    used: set[str] = set()
    values = _substitute(values, environ, used, "")
    # Variables and the command line over it.
    for name, text in environ.items():
        if name.startswith(_PREFIX) and not _OF_OTHERS.fullmatch(f"{name}={text}"):
            _override(values, name, _yaml(text, f"the environment variable {name}"))
    for key, value in (server or {}).items():
        _override(values, f"{_PREFIX}SERVER__{key.upper()}", value)
    # The check of the whole.
    if "from_variables" in values:  # filled in here, never by the file
        raise ConfigError("Invalid configuration: from_variables: unknown key")
    try:
        return Settings(**values, from_variables=frozenset(environ[name] for name in used))
    except ValidationError as error:
        raise ConfigError("\n".join(f"Invalid configuration: {fault}" for fault in faults(error))) from None


def faults(error: ValidationError, at: str = "") -> Iterator[str]:
    """Yields a line for each fault: ``upstreams[0].command: must be a list``. It never repeats a value.

    *at* is the place of the checked part in the configuration.
    """
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        where = _place(fault["loc"], at)
        yield f"{where}: {_explain(fault)}" if where else _explain(fault)


def _place(loc: tuple[int | str, ...], at: str) -> str:
    text = at
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _explain(fault: Any) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "tuple_type":
            return "must be a list"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "must be a section with keys"
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")


def find_config(environ: Mapping[str, str]) -> Path | None:
    """Returns the file that ``WICKETGATE_CONFIG`` names; otherwise ``wicketgate.yaml`` of the working directory, if it
    is there."""
    if named := environ.get(_FILE_VARIABLE):
        return Path(named)
    return _USUAL_FILE if _USUAL_FILE.is_file() else None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot read the configuration file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"The configuration file {path} is not UTF-8 text") from None
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


def _override(values: dict[str, Any], name: str, value: Any) -> None:
    """Puts *value* where the parts of *name* lead. The check of the whole finds unknown parts."""
    *sections, key = name.removeprefix(_PREFIX).lower().split("__")
    for section in sections:
        inner = values.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"Invalid configuration: {name}: {section} is not a section")
        values = inner
    values[key] = value


def _substitute(value: Any, environ: Mapping[str, str], used: set[str], where: str) -> Any:
    """Puts variables in place, at any depth. Adds to *used* the names of those that were set."""
    if isinstance(value, dict):
        return {
            key: _substitute(item, environ, used, f"{where}.{key}" if where else str(key))
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_substitute(item, environ, used, f"{where}[{index}]") for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value

    def found(match: re.Match[str]) -> str:
        variable, default = match.group(1), match.group(2)
        text = environ.get(variable, default)
        if text is None:
            raise ConfigError(
                f"Invalid configuration: {where}: the environment variable {variable} is not set "
                f"(${{{variable}:-default}} gives a default)"
            )
        if variable in environ:
            used.add(variable)
        return text

    return _VARIABLE.sub(found, value)

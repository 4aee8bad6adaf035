"""The options that several commands share, and the checks of their values."""

import os
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click
from click.core import ParameterSource

from app.commands.output import printable
from wicketgate.access.identity import ACTOR_PATTERN, Identity, parse_granted
from wicketgate.config.settings_file import configuration_line, find_config
from wicketgate.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

with_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document, and nothing else.")


def with_config(command: F) -> F:
    """Adds ``--config``. The command gets the file that is named, found, or None.

    Before it runs, a line on stderr says which one, unless a service is asked instead (*url*, see ``asked_url``).
    """

    @wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        # A command that can ask a service has its own words where there is no file either.
        if not asked_url(given.get("url")) and (given["config"] is not None or "url" not in given):
            _say_configuration(given["config"])
        return command(*args, **given)

    return _config_option(cast(F, run))


def with_served_config(command: F) -> F:
    """The same for a command whose log says which file is in force. In a terminal an error comes with that line."""
    return _said_with_errors(command, lambda: sys.stderr.isatty())


def with_checked_config(command: F) -> F:
    """The same for a command that says it by itself, in a line with more. An error comes with the usual line."""
    return _said_with_errors(command, lambda: True)


def _said_with_errors(command: F, is_said: Callable[[], bool]) -> F:
    @wraps(command)
    def run(*args: Any, **given: Any) -> Any:
        try:
            return command(*args, **given)
        except ConfigError:
            if is_said():
                _say_configuration(given["config"])
            raise

    return _config_option(cast(F, run))


_config_option = click.option(
    "--config",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=lambda context, option, named: named or find_config(os.environ),
    help="The configuration file.  [default: the file that WICKETGATE_CONFIG names, otherwise ./wicketgate.yaml if "
    "it exists; WICKETGATE_SECTION__KEY variables override it]",
)


def _say_configuration(config: Path | None) -> None:
    click.echo(printable(configuration_line(config, os.environ)), err=True)


def asked_url(url: str | None) -> str | None:
    """Returns the URL of the service that a command asks, or None if it starts a gate here.

    What stands on the command line counts before variables: ``--config`` before WG_URL, ``--url`` before
    WICKETGATE_CONFIG and ./wicketgate.yaml. Raises click.UsageError if both stand there.
    """
    source = click.get_current_context().get_parameter_source
    if source("config") is not ParameterSource.COMMANDLINE:
        return url
    if url and source("url") is ParameterSource.COMMANDLINE:
        raise click.UsageError("give --config to start a gate here, or --url to use a running one; not both")
    return None


def with_identity(command: F) -> F:
    """Adds ``--actor``, ``--permission`` and ``--role``, for calls that this process makes itself."""
    command = click.option("--role", "roles", multiple=True, help="A role of the actor; may be repeated.")(command)
    command = click.option(
        "--permission",
        "permissions",
        multiple=True,
        default=("*",),
        show_default=True,
        help="A permission of the actor; may be repeated.",
    )(command)
    return click.option("--actor", default="local", show_default=True, help="The actor of the calls.")(command)


def parse_identity(actor: str, permissions: Sequence[str], roles: Sequence[str] = ()) -> Identity:
    """Raises click.UsageError."""
    if not ACTOR_PATTERN.fullmatch(actor):
        raise click.UsageError("--actor must be letters, digits and ._@:/-, at most 128")
    try:
        return Identity(actor, parse_granted(permissions), roles=tuple(roles))
    except ValueError as error:
        raise click.UsageError(str(error)) from None

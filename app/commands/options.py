"""The options that several commands share, and the checks of their values."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from wicketgate.access.identity import ACTOR_PATTERN, Identity, parse_permissions
from wicketgate.config.settings_file import find_config

F = TypeVar("F", bound=Callable[..., Any])


def with_config(command: F) -> F:
    """Adds ``--config``. The command gets the file that is named, found, or None."""
    return click.option(
        "--config",
        type=click.Path(dir_okay=False, path_type=Path),
        callback=lambda context, option, named: named or find_config(os.environ),
        help="The configuration file.  [default: the file that WICKETGATE_CONFIG names, otherwise ./wicketgate.yaml if "
        "it is there; WICKETGATE_SECTION__KEY variables override it]",
    )(command)


def with_identity(command: F) -> F:
    """Adds ``--actor`` and ``--permission``, for calls that this process makes itself."""
    command = click.option(
        "--permission",
        "permissions",
        multiple=True,
        default=("*",),
        show_default=True,
        help="A permission of the actor; may be repeated.",
    )(command)
    return click.option("--actor", default="local", show_default=True, help="The actor of the calls.")(command)


def parse_identity(actor: str, permissions: Sequence[str]) -> Identity:
    """Raises click.UsageError."""
    if not ACTOR_PATTERN.fullmatch(actor):
        raise click.UsageError("--actor must be letters, digits and ._@:/-, at most 128")
    try:
        return Identity(actor, parse_permissions(",".join(permissions)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None

"""``wicketgate serve --workers N``: what the workers share, and the roles that the supervisor keeps running."""

import gc
import logging
import secrets
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import click
from pydantic import SecretStr

from app.late_doors import import_doors
from app.lifespan import usual_greeting
from app.local_key import local_key
from app.logs import plain_logs
from app.process import EarlyHangup
from app.workers.folder import private_folder
from app.workers.load import Loads
from app.workers.place import Place
from app.workers.stdio_owner import listening_owner, run_owner
from app.workers.supervisor import Role, Supervisor
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.log_text import Redactor
from wicketgate.tokens import shipped_token_counter

log = logging.getLogger("wicketgate.workers")

Serve = Callable[[Settings, Callable[[], Settings], Place | None], int]
"""Serves as one worker until it is stopped; returns the exit code."""


def share_imports() -> None:
    """Imports and reads what every worker needs, once, before any is forked, so that they share its pages (OPS-372)."""
    import_doors()
    shipped_token_counter()
    gc.freeze()


def check_shared(settings: Settings, workers: int) -> None:
    """Raises ConfigError if several workers cannot share what they keep."""
    if settings.storage.url == "memory://":
        raise ConfigError(
            f"--workers {workers} needs a store that the workers share, and storage.url is memory://: a handle of one "
            "would be unknown to the others. Set storage.url: sqlite:///wicketgate.db, or leave --workers out"
        )


def serve_with_workers(
    serve: Serve, address: str, settings: Settings, load: Callable[[], Settings], workers: int
) -> int:
    """Serves with so many processes until a signal stops them; returns the exit code. Raises ConfigError."""
    share_imports()
    sealed = _sealing(settings)
    settings, load = sealed(settings), partial(_loaded, load, sealed)
    local = None if settings.auth.identifies else local_key(settings.auth.key_file)
    found = signal.getsignal(signal.SIGHUP)
    server = settings.server
    with (
        private_folder() as folder,
        plain_logs(server.log_level, Redactor([*settings.secrets(), local.secret if local else ""]), server.log_format),
        listening_owner(folder) as (owner, owner_path),
    ):
        loads = Loads.of(workers)

        def work(number: int, starts: int, report: int, lifeline: int) -> int:
            owner.close()
            loads.absent(number)  # until it takes connections
            place = Place(number, workers, starts, folder, report, lifeline, loads, local, owner_path)
            return serve(settings, load, place)

        roles = [Role("the owner of stdio servers", partial(run_owner, owner, settings), serves=False)]
        roles += [Role(f"worker {number}", partial(work, number)) for number in range(workers)]

        def ready() -> None:
            text = usual_greeting(address, local, settings)
            with suppress(OSError, ValueError):
                click.echo(text, err=not sys.stdout.isatty())

        log.info(
            "%d workers: what one actor may hold or do (max_..._per_actor, quota) holds for all of them; what all "
            "actors may hold, and breakers, are counted and kept by each",
            workers,
        )
        return Supervisor(
            roles,
            drain_s=server.settle_s + server.drain_s,
            ready=ready,
            early=found if isinstance(found, EarlyHangup) else None,
        ).run()


def _loaded(load: Callable[[], Settings], sealed: Callable[[Settings], Settings]) -> Settings:
    return sealed(load())


def _sealing(settings: Settings) -> Callable[[Settings], Settings]:
    """Returns what gives settings without ``auth.seal_keys`` one key for all workers: what one of them has sealed is
    opened by the others."""
    if not settings.auth.seal_keys and any(rule.approval != "never" for rule in settings.access):
        log.warning("approvals end with these processes, because auth.seal_keys is not set")
    key = SecretStr(secrets.token_hex(32))

    def sealed(settings: Settings) -> Settings:
        if settings.auth.seal_keys:
            return settings
        return settings.model_copy(update={"auth": settings.auth.model_copy(update={"seal_keys": (key,)})})

    return sealed

"""Starts the workers of ``wicketgate serve --workers`` and keeps them running (OPS-175 to OPS-179); what they share.

Each worker is forked from this process, which has imported the program and does nothing else: no thread, no event loop,
no upstream. The listening socket is opened once and handed down; the kernel gives a connection to whichever worker
takes it first. uvicorn's own supervisor replaces all workers at a SIGHUP, and waits for them without a bound.
"""

import gc
import importlib
import logging
import os
import secrets
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from types import FrameType

import click

from app.lifespan import usual_greeting
from app.local_key import local_key
from app.logs import plain_logs
from app.mcp.door import SDK_PART
from app.process import EarlyHangup, has_terminal
from app.workers.place import CUT, READY, Loads, Place
from wicketgate.config.settings import Settings
from wicketgate.errors import ConfigError
from wicketgate.log_text import Redactor
from wicketgate.tokens import shipped_token_counter

log = logging.getLogger("wicketgate.workers")

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_ENDS_WITHIN_S = 15.0
_FAULT = b"!"
FIRST_DELAY_S = 0.1
MAX_DELAY_S = 10.0
LASTED_S = 30.0
MAX_IN_VAIN = 8

Serve = Callable[[Settings, Callable[[], Settings], Place | None], int]
"""Serves as one worker until it is stopped; returns the exit code."""


@dataclass(frozen=True, slots=True)
class Role:
    """A process to keep running. *body* is called in it with its *starts*, the descriptor on which it reports, and the
    one that ends with the supervisor; it returns the exit code."""

    name: str
    body: Callable[[int, int, int], int]


@dataclass(slots=True)
class Deaths:
    """The deaths of the processes at one place (OPS-178). *in_vain* counts those in a row that were never ready."""

    delay_s: float = FIRST_DELAY_S
    in_vain: int = 0

    def pause_s(self, *, lived_s: float, was_ready: bool) -> float:
        """Counts one more death, and returns the seconds until the next start: they double while processes do not
        last."""
        self.in_vain = 0 if was_ready else self.in_vain + 1
        if lived_s >= LASTED_S:
            self.delay_s = FIRST_DELAY_S
        pause_s, self.delay_s = self.delay_s, min(self.delay_s * 2, MAX_DELAY_S)
        return pause_s

    @property
    def hopeless(self) -> bool:
        """True after MAX_IN_VAIN failed starts in a row: an operator has to fix the cause."""
        return self.in_vain >= MAX_IN_VAIN


@dataclass(slots=True)
class _Kept:
    role: Role
    deaths: Deaths = field(default_factory=Deaths)
    starts: int = 0
    pid: int = 0
    report: int = -1
    words: bytes = b""
    began: float = 0.0
    due: float = 0.0

    @property
    def ready(self) -> bool:
        return self.words.startswith(READY)


class Supervisor:
    """*ready* is called once, when every role has been ready. *drain_s* bounds the first stop, in seconds.
    *early* has noted the SIGHUPs of the start."""

    def __init__(
        self, roles: list[Role], *, drain_s: float, ready: Callable[[], None], early: EarlyHangup | None
    ) -> None:
        self._kept = [_Kept(role) for role in roles]
        self._drain_s = drain_s
        self._ready: Callable[[], None] | None = ready
        self._early = early
        self._stops = 0
        self._kill_at: float | None = None
        self._killed = False
        self._fault = ""

    def run(self) -> int:
        """Returns the exit code when all have ended. Raises ConfigError if the first start of a worker has failed."""
        lifeline, held = os.pipe()
        try:
            with _noted_signals() as noted:
                while True:
                    self._start_due(lifeline, held)
                    if self._stops and not any(kept.pid for kept in self._kept):
                        break
                    self._wait(noted)
        finally:
            os.close(held)
            os.close(lifeline)
        if self._fault:
            raise ConfigError(self._fault)
        return 1 if self._killed else 0

    def _start_due(self, lifeline: int, held: int) -> None:
        for kept in self._kept:
            if not self._stops and not kept.pid and kept.due <= monotonic():
                self._start(kept, lifeline, held)

    def _start(self, kept: _Kept, lifeline: int, held: int) -> None:
        report, reports = os.pipe()
        kept.starts += 1
        # A signal in between would find the handlers of this process in the new one.
        signal.pthread_sigmask(signal.SIG_BLOCK, _HANDLED)
        try:
            pid = os.fork()
            if pid == 0:
                self._become(kept, [held, report, *(other.report for other in self._kept)], reports, lifeline)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
        os.close(reports)
        kept.pid, kept.report, kept.words, kept.began = pid, report, b"", monotonic()

    def _become(self, kept: _Kept, foreign: list[int], reports: int, lifeline: int) -> None:
        """Goes on as the new process, and ends it."""
        code = 1
        try:
            os.setpgid(0, 0)  # the terminal's Ctrl-C is for the supervisor, which passes it on
            signal.set_wakeup_fd(-1)
            for number in _HANDLED:
                signal.signal(number, signal.SIG_DFL)
            self._note_hangups(again=kept.starts > 1)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)
            for descriptor in foreign:
                if descriptor >= 0:
                    os.close(descriptor)
            code = kept.role.body(kept.starts, reports, lifeline)
        except ConfigError as error:
            with suppress(OSError):
                os.write(reports, _FAULT + str(error).encode()[:4_000])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)

    def _note_hangups(self, *, again: bool) -> None:
        """Remembers SIGHUP for the gate of this new process. One that starts *again* has the first configuration, and
        reads it again as its peers may have done."""
        early = EarlyHangup()
        early.attached = False  # the supervisor sees whether the terminal has gone
        early.came = again or (self._early is not None and self._early.came)
        signal.signal(signal.SIGHUP, early)

    def _wait(self, noted: int) -> None:
        """Waits for a signal, a report or the next moment at which something is due, and sees to it."""
        reports = {kept.report: kept for kept in self._kept if kept.report >= 0}
        due = [kept.due for kept in self._kept if not kept.pid and not self._stops]
        due += [self._kill_at] if self._kill_at is not None else []
        timeout_s = max(0.0, min(due) - monotonic()) if due else None
        found, _, _ = select.select([noted, *reports], [], [], timeout_s)
        for report in found:
            if report != noted:
                self._heard(reports[report])
        for number in os.read(noted, 512) if noted in found else b"":
            self._signalled(signal.Signals(number))
        self._reap()
        self._see_to_the_stop()

    def _heard(self, kept: _Kept) -> None:
        words = os.read(kept.report, 4_096)
        kept.words += words
        if not words:
            os.close(kept.report)
            kept.report = -1
        if self._ready is not None and all(each.ready for each in self._kept):
            ready, self._ready = self._ready, None
            ready()

    def _signalled(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            if self._early is not None and self._early.attached and not has_terminal():
                self._stop(signal.SIGTERM)
                return
            self._send(signal.SIGHUP)
        elif number in (signal.SIGTERM, signal.SIGINT):
            self._stop(number)

    def _stop(self, number: signal.Signals) -> None:
        self._stops += 1
        self._kill_at = monotonic() + _ENDS_WITHIN_S + (self._drain_s if self._stops == 1 else 0.0)
        self._send(number if self._stops == 1 else CUT)

    def _send(self, number: signal.Signals) -> None:
        for kept in self._kept:
            if kept.pid:
                with suppress(ProcessLookupError):
                    os.kill(kept.pid, number)

    def _reap(self) -> None:
        for kept in self._kept:
            if kept.pid:
                pid, status = os.waitpid(kept.pid, os.WNOHANG)
                if pid:
                    self._died(kept, os.waitstatus_to_exitcode(status))

    def _died(self, kept: _Kept, code: int) -> None:
        while kept.report >= 0:
            self._heard(kept)  # what it said last
        pid, kept.pid = kept.pid, 0
        if self._stops:
            return
        if kept.words.startswith(_FAULT) and self._ready is not None:
            self._fault = kept.words[len(_FAULT) :].decode("utf-8", "replace")
            self._stop(signal.SIGTERM)
            return
        pause_s = kept.deaths.pause_s(lived_s=monotonic() - kept.began, was_ready=kept.ready)
        kept.due = monotonic() + pause_s
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        why = f": {kept.words[1:].decode('utf-8', 'replace')}" if kept.words.startswith(_FAULT) else ""
        log.error("%s (process %d) has ended %s%s; started again in %.1f s", kept.role.name, pid, how, why, pause_s)
        if kept.deaths.hopeless and not any(each.pid and each.ready for each in self._kept):
            self._fault = f"No worker can start: {kept.role.name} has ended {how}, {kept.deaths.in_vain} times in a row"
            self._stop(signal.SIGTERM)

    def _see_to_the_stop(self) -> None:
        if not self._stops:
            return
        if self._kill_at is not None and monotonic() >= self._kill_at:
            running = [kept for kept in self._kept if kept.pid]
            log.error("%s did not end in time: killed", ", ".join(kept.role.name for kept in running))
            self._killed, self._kill_at = True, None
            for kept in running:
                os.kill(kept.pid, signal.SIGKILL)


@contextmanager
def _noted_signals() -> Iterator[int]:
    """Gives a descriptor on which each signal for the supervisor is a byte."""
    noted, notes = os.pipe()
    os.set_blocking(notes, False)
    before = {number: signal.getsignal(number) for number in _HANDLED}
    for number in _HANDLED:
        signal.signal(number, _nothing)
    was = signal.set_wakeup_fd(notes)
    try:
        yield noted
    finally:
        signal.set_wakeup_fd(was)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(noted)
        os.close(notes)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Handles a signal that is read from its descriptor."""


def share_imports() -> None:
    """Imports and reads what every worker needs, once, before any is forked, so that they share its pages (OPS-372)."""
    importlib.import_module(SDK_PART)
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
    """Serves with *workers* processes until a signal stops them. Returns the exit code. Raises ConfigError."""
    share_imports()
    seal_key = secrets.token_bytes(32)
    local = None if settings.auth.identifies else local_key(settings.auth.key_file)
    found = signal.getsignal(signal.SIGHUP)
    server = settings.server
    redactor = Redactor([*settings.secrets(), local.secret if local else ""])
    with plain_logs(server.log_level, redactor, server.log_format):
        loads, service = Loads.of(workers), secrets.token_hex(8)

        def work(number: int, starts: int, report: int, lifeline: int) -> int:
            loads.absent(number)  # until it takes connections
            place = Place(number, workers, starts, report, lifeline, loads, local, seal_key, service)
            return serve(with_present_ring(settings, load) if starts > 1 else settings, load, place)

        roles = [Role(f"worker {number}", partial(work, number)) for number in range(workers)]

        def ready() -> None:
            text = usual_greeting(address, local, settings)
            with suppress(OSError, ValueError):
                click.echo(text, err=not sys.stdout.isatty())

        log.info(
            "%d workers: limits per actor (max_..._per_actor, quota) apply to all of them together; total limits and "
            "breakers apply to each worker",
            workers,
        )
        if stdio := [upstream.name for upstream in settings.upstreams if upstream.command and upstream.enabled]:
            log.info(
                "each worker runs its own stdio servers (%s): run a server that keeps state between calls over HTTP",
                ", ".join(stdio),
            )
        return Supervisor(
            roles,
            drain_s=server.settle_s + server.drain_s,
            ready=ready,
            early=found if isinstance(found, EarlyHangup) else None,
        ).run()


def with_present_ring(settings: Settings, load: Callable[[], Settings]) -> Settings:
    """Returns *settings* with ``auth.seal_keys`` as *load* reads them. The store may refuse those of the first start,
    because reloads have changed them (ACCESS-334)."""
    try:
        seal_keys = load().auth.seal_keys
    except ConfigError:  # the reload, which comes soon, logs it
        return settings
    return settings.model_copy(update={"auth": settings.auth.model_copy(update={"seal_keys": seal_keys})})

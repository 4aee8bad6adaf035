"""Starts the workers of ``wicketgate serve --workers`` and keeps them running (OPS-175 to OPS-179).

Each worker is forked from this process, which has imported the program and does nothing else: no thread, no event loop,
no upstream. The listening socket is opened once and handed down; the kernel gives a connection to whichever worker
takes it first. uvicorn's own supervisor replaces all workers at a SIGHUP, and waits for them without a bound.
"""

import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic
from types import FrameType

from app.process import EarlyHangup, has_terminal
from app.workers.place import CUT, READY
from app.workers.replacing import Deaths
from wicketgate.errors import ConfigError

log = logging.getLogger("wicketgate.workers")

_HANDLED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
_ENDS_WITHIN_S = 15.0
_FAULT = b"!"


@dataclass(frozen=True, slots=True)
class Role:
    """A process to keep running. *body* is called in it with its *starts*, the descriptor on which it reports, and the
    one that ends with the supervisor; it returns the exit code. *serves*: a worker, not a helper of workers."""

    name: str
    body: Callable[[int, int, int], int]
    serves: bool = True


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
    """*ready* is called once, when every role that serves has been ready. *drain_s* bounds the first stop, in seconds.
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
        reads it anew as its peers may have done."""
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
        serving = [each for each in self._kept if each.role.serves]
        if self._ready is not None and all(each.ready for each in serving):
            ready, self._ready = self._ready, None
            ready()

    def _signalled(self, number: signal.Signals) -> None:
        if number == signal.SIGHUP:
            if self._early is not None and self._early.attached and not has_terminal():
                self._stop(signal.SIGTERM)
                return
            self._send(signal.SIGHUP, serving=True)
        elif number in (signal.SIGTERM, signal.SIGINT):
            self._stop(number)

    def _stop(self, number: signal.Signals) -> None:
        self._stops += 1
        self._kill_at = monotonic() + _ENDS_WITHIN_S + (self._drain_s if self._stops == 1 else 0.0)
        self._send(number if self._stops == 1 else CUT, serving=True)
        if self._stops > 1:
            self._send(CUT, serving=False)

    def _send(self, number: signal.Signals, *, serving: bool) -> None:
        for kept in self._kept:
            if kept.pid and kept.role.serves == serving:
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
        lived_s = monotonic() - kept.began
        # A helper reports nothing: it is ready if it has lived for a moment.
        ready = kept.ready or (not kept.role.serves and lived_s > 1)
        pause_s = kept.deaths.pause_s(lived_s=lived_s, was_ready=ready)
        kept.due = monotonic() + pause_s
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        why = f": {kept.words[1:].decode('utf-8', 'replace')}" if kept.words.startswith(_FAULT) else ""
        log.error("%s (process %d) has ended %s%s; started again in %.1f s", kept.role.name, pid, how, why, pause_s)
        if kept.deaths.hopeless and not any(each.pid and each.ready for each in self._kept if each.role.serves):
            self._fault = f"No worker can start: {kept.role.name} has ended {how}, {kept.deaths.in_vain} times in a row"
            self._stop(signal.SIGTERM)

    def _see_to_the_stop(self) -> None:
        if not self._stops:
            return
        if not any(kept.pid for kept in self._kept if kept.role.serves):
            self._send(signal.SIGTERM, serving=False)  # what workers need ends after them
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

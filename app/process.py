"""Changes a process that is this program's own: the search path of modules, signals, and the garbage collector."""

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from wicketgate.config.settings import Settings

log = logging.getLogger("wicketgate.configuration")

_NEVER = 1_000_000
_YOUNG_OBJECTS = 10_000


def search_python_folders(settings: Settings) -> None:
    """Adds the folders of Python upstreams to the search path of modules, after all that is installed.

    A folder stays there: tools may import their neighbours at any time.
    """
    for upstream in settings.upstreams:
        folder = str(Path(upstream.cwd or ".").resolve())
        if upstream.python and upstream.enabled and folder not in sys.path:
            sys.path.append(folder)


def open_standard_streams() -> None:
    """Opens the null device in place of each standard stream that was closed when the process started (``>&-``).
    Otherwise the next file that is opened gets the number of that stream."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  for as long as the process lives


class EarlyHangup:
    """Remembers SIGHUP from now on, until ``on_hangup`` takes it over: a start takes seconds, and the signal would end
    the process until then. *before* is the handler that was there; *attached*: the end of the terminal stops us."""

    def __init__(self) -> None:
        self.came = False
        self.before = signal.getsignal(signal.SIGHUP)
        self.attached = self.before != signal.SIG_IGN and has_terminal()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.came = True


@contextmanager
def remembered_hangup() -> Iterator[None]:
    """Remembers SIGHUP while the context is open, for ``on_hangup``. A handler that is already set stays."""
    is_free = signal.getsignal(signal.SIGHUP) in (signal.SIG_DFL, signal.SIG_IGN)
    if not is_free or threading.current_thread() is not threading.main_thread():
        yield
        return
    early = EarlyHangup()
    signal.signal(signal.SIGHUP, early)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, early.before)


@contextmanager
def on_hangup(reload: Callable[[], None]) -> Iterator[None]:
    """Calls *reload* on the running loop for each SIGHUP, while the context is open.

    If the terminal that the process was started in has gone, SIGHUP stops the process; under ``nohup`` it does not. A
    handler that is already set stays: then only a restart reads the configuration again. One that ``remembered_hangup``
    has seen before counts.
    """
    found = signal.getsignal(signal.SIGHUP)
    early = found if isinstance(found, EarlyHangup) else None
    if (
        early is None and found not in (signal.SIG_DFL, signal.SIG_IGN)
    ) or threading.current_thread() is not threading.main_thread():
        log.warning("the server handles SIGHUP itself: only a restart reads the configuration again")
        yield
        return
    attached = early.attached if early is not None else found != signal.SIG_IGN and has_terminal()

    def reload_or_stop() -> None:
        if attached and not has_terminal():
            signal.raise_signal(signal.SIGTERM)
        else:
            reload()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGHUP, reload_or_stop)
    if early is not None and early.came:
        reload_or_stop()
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, found)


@contextmanager
def on_stop(begin: Callable[[], None]) -> Iterator[None]:
    """Calls *begin* on the running loop when SIGTERM or SIGINT stops the server that serves us, while the context is
    open. The server's own handler is called as before.

    A server ends its lifespan after its connections. Without this, a stream that listens without end would keep its
    connection open, and the server would never stop.
    """
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Callable[[int, FrameType | None], object]] = {}

    def begin_and_stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(begin)
        before[signal.Signals(number)](number, frame)

    # In other threads no handler can be set; a server there is stopped by other means.
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, begin_and_stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


@contextmanager
def without_collections() -> Iterator[None]:
    """Holds the garbage collector back while modules are imported and parts are made: nearly all of it stays, and
    looking for garbage in it again and again is a tenth of a start. It is never looked at again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_on:
            gc.enable()


def collect_seldom() -> None:
    """Sets the garbage collector up for a service that has been built.

    Imported objects stay, so they are not looked at again, not even now: there are some thousand lost ones among them.
    Requests leave little garbage in cycles, and looking for it after every 700 objects would cost a tenth of relaying a
    model's stream.
    """
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, *gc.get_threshold()[1:])


class Heap:
    """Implements HeapKeeper, once in a process: no full collection runs during a refresh of the catalog.

    A full collection looks at every container of the heap and holds the event loop in the meantime: 0.2 s and more with
    10,000 tools (``make bench-pause``). After a refresh that changed a large catalog the heap is frozen: collections
    skip what it holds, which is still freed when nothing refers to it. Only garbage in cycles that is alive at a freeze
    is never collected, so nothing but such a change causes a freeze.
    """

    def __init__(self) -> None:
        self._refreshes = 0
        self._thresholds = gc.get_threshold()

    @contextmanager
    def refreshing(self) -> Iterator[None]:
        if self._refreshes == 0:
            self._thresholds = gc.get_threshold()
            gc.set_threshold(*self._thresholds[:2], _NEVER)
        self._refreshes += 1
        try:
            yield
        finally:
            self._refreshes -= 1
            if self._refreshes == 0:
                gc.set_threshold(*self._thresholds)

    def settle(self) -> None:
        gc.freeze()

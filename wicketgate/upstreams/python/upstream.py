"""Typed functions of an installed package, called in this process (UP-34 to UP-36).

Async functions run on the event loop, all others in a bounded number of threads, shared fairly among actors. A thread
cannot be ended: when its caller has gone it runs on, keeps a slot of that actor, and the status reports it.
Progress and log messages reach the caller from any thread, in order.
"""

import asyncio
import functools
import importlib
import importlib.machinery
import importlib.util
import logging
import math
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from pydantic_core import PydanticSerializationError, to_jsonable_python

from wicketgate.daemon_threads import DaemonThreads, NoThreadLeft
from wicketgate.errors import ArgsInvalid, UpstreamError, UpstreamUnavailable
from wicketgate.ports import CallContext, Caller, UpstreamStatus
from wicketgate.tools import ToolContext, ToolFailed, ToolRegistry
from wicketgate.upstreams.python.results import NotJson, failed_result
from wicketgate.upstreams.python.tool import PythonTool, UnusableFunction, read_function

_LEVELS = frozenset({"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"})

_MAX_WAITING = 100
"""Messages that may wait for a caller that reads slowly. Later ones are dropped."""
_FINISH_S = 1.0

_Send = Callable[[], Awaitable[None]]


class CallerMessages:
    """The messages of one call. Nothing is started before the first one."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[_Send] = deque()
        self._sending: asyncio.Task[None] | None = None
        self._over = False

    def context(self, call: CallContext) -> ToolContext:
        return ToolContext(
            call.identity.actor, call.correlation_id, self._progress, self._log, is_over=lambda: self._over
        )

    async def finish(self) -> None:
        """Wait until the messages are sent, so that they come before the result, unless the caller is too slow."""
        # The last message of a function on this loop is queued by the loop's next turn.
        await asyncio.sleep(0)
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=_FINISH_S)

    def close(self) -> None:
        self._over = True
        self._waiting.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _progress(self, progress: float, total: float | None, message: str | None) -> None:
        numbers = [number for number in (progress, total) if number is not None]
        if all(isinstance(number, int | float) and math.isfinite(number) for number in numbers):
            self._post(partial(self._caller.progress, progress, total, None if message is None else str(message)))

    def _log(self, level: str, data: object, logger: str | None) -> None:
        try:
            plain: Any = to_jsonable_python(data, by_alias=True, inf_nan_mode="null", fallback=str)
        except (PydanticSerializationError, ValueError, TypeError):
            plain = "(what was logged here is not JSON)"
        self._post(partial(self._caller.log, level if level in _LEVELS else "info", plain, logger))

    def _post(self, send: _Send) -> None:
        try:
            self._loop.call_soon_threadsafe(self._queue, send)
        except RuntimeError:
            return  # the loop is closed, and the caller with it

    def _queue(self, send: _Send) -> None:
        if self._over or len(self._waiting) >= _MAX_WAITING:
            return
        self._waiting.append(send)
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())

    async def _send(self) -> None:
        while self._waiting:
            await self._waiting.popleft()()


log = logging.getLogger("wicketgate.python")

_FAILED = "The tool failed unexpectedly. The reason is in the gateway's log, with the correlation id {}."
_MAX_MESSAGE_CHARS = 10_000
_importing = threading.Lock()


class PythonUpstream:
    """The tools of *source*: a registry, or the place of one, of a function, of a list of functions (all
    ``package.module:name``) or of a module whose public functions are meant (``package.module``).

    The package, or module, is looked for in *folder* after the installed ones. ``sys.path`` is not changed, so the
    package can import its neighbours in *folder* only if the process has the folder on it. The service adds it at its
    start.
    """

    def __init__(self, name: str, source: str | ToolRegistry, *, threads: int = 8, folder: str = ".") -> None:
        self.name = name
        self._source = source
        self._folder = folder
        self._limit = threads
        # A share of fewer than five would be all of them. Of two or more, one stays for other actors.
        self._threads = DaemonThreads(threads, f"tools of {name}", threads - 1 if 1 < threads < 5 else None)
        self._tools: dict[str, PythonTool] = {}
        self._status = UpstreamStatus("connecting")

    @property
    def status(self) -> UpstreamStatus:
        held = self._threads.abandoned.total()
        if held and self._status.phase == "ready":
            return UpstreamStatus("ready", f"{held} of {self._limit} threads still run cancelled calls")
        return self._status

    async def supervise(self, changed: Callable[[str], None]) -> None:
        try:
            # In a thread: importing can take long, and everything else is served in the meantime.
            self._tools = await self._threads.run(functools.partial(_load, self._source, self._folder))
        except _NotLoaded as error:
            log.error("%s: %s", self.name, error.detail or error, exc_info=error.__cause__)
            self._status = UpstreamStatus("down", str(error), detail=error.detail)
        else:
            self._status = UpstreamStatus("ready")
            changed(self.name)
        try:
            await asyncio.Event().wait()
        finally:
            self._threads.close()

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        self._refuse_unless_ready()
        return [tool.definition for tool in self._tools.values()]

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        """Raises ArgsInvalid too, when the arguments fit the schema but not the declared types."""
        self._refuse_unless_ready()
        tool = self._tools.get(name)
        if tool is None or tool.streams:
            raise UpstreamError(f"{self.name} has no such tool.")
        messages = CallerMessages(context.caller)
        try:
            result = await self._run(tool, arguments, context, messages)
            await messages.finish()
            return result
        finally:
            messages.close()

    async def ping(self, timeout_s: float) -> None:
        """Functions run in this process, which lives; whether one hangs is its caller's affair."""
        self._refuse_unless_ready()

    async def _run(
        self, tool: PythonTool, arguments: Mapping[str, Any], context: CallContext, messages: CallerMessages
    ) -> Mapping[str, Any]:
        # Errors with a meaning of their own are passed on; every other error is the tool's.
        try:
            call = tool.bind(arguments, messages.context(context))
            if tool.on_loop:
                return tool.result(await call())
            value = await self._threads.run(functools.partial(_call_in_thread, tool, call), context.identity.actor)
            # A function that is not async may still return an awaitable.
            return tool.result(await value) if hasattr(value, "__await__") else value
        except ArgsInvalid:
            raise
        except NoThreadLeft:
            raise UpstreamUnavailable(
                f"All threads of {self.name} that this caller may use still run cancelled calls."
            ) from None
        except NotJson:
            log.error("%s: the tool %s returned a result that JSON cannot hold", self.name, tool.definition["name"])
            raise UpstreamError(f"{self.name}: the tool returned a result that JSON cannot hold.") from None
        except ToolFailed as error:
            return failed_result(str(error.message)[:_MAX_MESSAGE_CHARS])
        except asyncio.CancelledError as error:
            # The function raised it by itself, unless this task was cancelled.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._unexpected(tool, error, context)
        except (Exception, SystemExit) as error:
            # The outermost boundary of a foreign function: the process outlives every error.
            return self._unexpected(tool, error, context)

    def _unexpected(self, tool: PythonTool, error: BaseException, context: CallContext) -> Mapping[str, Any]:
        what = "%s: the tool %s failed (correlation id %s)"
        log.error(what, self.name, tool.definition["name"], context.correlation_id, exc_info=error)
        return failed_result(_FAILED.format(context.correlation_id))

    def _refuse_unless_ready(self) -> None:
        if self._status.phase != "ready":
            raise UpstreamUnavailable(f"{self.name} is not ready ({self._status.error or 'importing its module'}).")


_NOT_FOUND = "install it beside this program, or name its folder in cwd"
_NO_REGISTRY = "python names the module and its registry or function; the module alone stands for its public functions"


class _NotLoaded(Exception):
    """The module cannot be loaded. The text names it and the class of the error, never its words; *mend* is for the
    operator."""

    def __init__(self, reason: str, mend: str = "") -> None:
        super().__init__(reason)
        self.detail = f"{reason}: {mend}" if mend else ""


def _call_in_thread(tool: PythonTool, call: Callable[[], Any]) -> Any:
    """Calls and makes the result, both in a thread, because either may take long. Returns what has to be awaited on the
    event loop as it is."""
    value = call()
    return value if hasattr(value, "__await__") else tool.result(value)


def _import(module_name: str, folder: str) -> ModuleType:
    """Returns the module. Raises any error of the module."""
    top = module_name.partition(".")[0]
    # One at a time: two upstreams may share a package, which must not be made twice.
    with _importing:
        if top not in sys.modules and importlib.util.find_spec(top) is None:
            spec = importlib.machinery.PathFinder.find_spec(top, [folder])
            if spec is not None and spec.loader is not None:
                module = sys.modules[top] = importlib.util.module_from_spec(spec)
                try:
                    spec.loader.exec_module(module)
                except BaseException:
                    del sys.modules[top]
                    raise
    return importlib.import_module(module_name)


def _load(source: str | ToolRegistry, folder: str) -> dict[str, PythonTool]:
    """Returns the tools of *source* by name. Raises _NotLoaded."""
    registry = _find(source, folder) if isinstance(source, str) else source
    try:
        return {tool.name: read_function(tool) for tool in registry}
    except UnusableFunction as error:
        raise _NotLoaded(str(error)) from error


def _find(target: str, folder: str) -> ToolRegistry:
    """Raises _NotLoaded."""
    module_name, _, attribute = target.partition(":")
    try:
        found: Any = _import(module_name, folder)
    except BaseException as error:
        # An error of a foreign module while it is imported, sys.exit() too, concerns this upstream alone.
        mend = _NOT_FOUND if isinstance(error, ModuleNotFoundError) and error.name == module_name else ""
        raise _NotLoaded(f"the module {module_name} cannot be imported ({type(error).__name__})", mend) from error
    try:
        for part in attribute.split(".") if attribute else ():
            found = getattr(found, part)
    except AttributeError:
        raise _NotLoaded(f"the module {module_name} has no {attribute}", _NO_REGISTRY) from None
    try:
        return ToolRegistry.of(found)
    except (TypeError, ValueError) as error:
        raise _NotLoaded(f"{target} is neither a ToolRegistry nor functions") from error

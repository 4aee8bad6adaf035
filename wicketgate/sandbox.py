"""The port to the sandbox of programs: the interpreter of ``pydantic-monty``, in processes of its own (EXEC-140).

The package is imported for the first program. A worker has an empty environment; a program has no files, no network and
no clock that waits. Time counts only while a program computes.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

PACKAGE = "pydantic_monty"
INSTALL = "code_mode needs an interpreter for programs, which is not installed: pip install 'wicketgate[code]'"
MAX_PRINTED = 1_048_576
"""A program that prints more ends as one that needs too much memory. A callback for what is printed would be called
during the end of the process too, which aborts it."""
_FIRST = "ToolError = RuntimeError"

Kind = Literal["invalid", "failed", "seconds", "memory", "lost"]


def is_installed() -> bool:
    return find_spec(PACKAGE) is not None


class ProgramFault(Exception):
    """The end of a program without an answer. *message* may repeat values of the program. *line* is 0 if unknown."""

    def __init__(self, kind: Kind, message: str = "", line: int = 0) -> None:
        super().__init__(message)
        self.kind, self.message, self.line = kind, message, line


@dataclass(frozen=True, slots=True)
class Asked:
    """The program waits for an answer to a call of a function. *name* is empty for what no program may ask."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ended:
    value: Any


class Session:
    """One program in a worker. Every method that goes on returns the next step, and raises ProgramFault."""

    def __init__(self, session: Any, package: Any, printed: str) -> None:
        self._session = session
        self._package = package
        self._at: Any = None
        self._before = printed
        self._prints = package.CollectString(MAX_PRINTED)

    @property
    def printed(self) -> str:
        return self._before + str(self._prints.output)

    async def start(self, code: str) -> Asked | Ended:
        await self._session.feed_run(_FIRST)
        return await self._step(self._session.feed_start(code, print_callback=self._prints))

    async def load(self, state: bytes) -> Asked | Ended:
        return await self._step(self._session.load_snapshot(state, print_callback=self._prints))

    async def answer(self, value: Any) -> Asked | Ended:
        return await self._step(self._at.resume({"return_value": value}))

    async def refuse(self, message: str) -> Asked | Ended:
        """Raises ToolError inside the program."""
        return await self._step(self._at.resume({"exc_type": "RuntimeError", "message": message}))

    async def refuse_unknown(self) -> Asked | Ended:
        at = self._at
        if not isinstance(at, self._package.AsyncFunctionSnapshot):
            return await self._step(at.resume())
        if at.is_os_function:
            return await self._step(at.resume_not_handled())
        message = f"name {at.function_name!r} is not defined"
        return await self._step(at.resume({"exc_type": "NameError", "message": message}))

    def state(self) -> bytes:
        """The program as it waits now, to be loaded by any process with the same format. It is not authenticated."""
        state: bytes = self._at.dump()
        return state

    async def _step(self, work: Any) -> Asked | Ended:
        try:
            at = self._at = await work
        except self._package.MontyError as error:
            raise _fault(error, self._package) from None
        if isinstance(at, self._package.MontyComplete):
            return Ended(at.output)
        if isinstance(at, self._package.AsyncFutureSnapshot):
            raise ProgramFault("invalid", "Calls of tools are not awaited.")
        if isinstance(at, self._package.AsyncFunctionSnapshot) and not at.is_os_function:
            return Asked(str(at.function_name), at.args, at.kwargs)
        return Asked("", (), {})


class Interpreter:
    """A pool of *workers* processes, begun by the first program. *seconds* of computing and *memory* in bytes bound
    each program."""

    def __init__(self, seconds: float, memory: int, workers: int) -> None:
        self._limits = {
            "max_feed_duration_secs": seconds,
            "max_memory": memory,
            "max_recursion_depth": 200,
            "max_suspensions": 1_000_000,
        }
        self._workers = workers
        self._pool: Any = None
        self._open = AsyncExitStack()

    @asynccontextmanager
    async def session(self, printed: str = "") -> AsyncIterator[Session]:
        """Raises ProgramFault if no worker can be had."""
        import pydantic_monty as package

        if self._pool is None:
            self._pool = package.AsyncMonty(min_processes=1, max_processes=self._workers, max_checkouts_per_worker=100)
            await self._open.enter_async_context(self._pool)
        async with AsyncExitStack() as stack:
            try:
                session = await stack.enter_async_context(
                    self._pool.checkout(limits=self._limits, os_policy={"sleep": "zero"})
                )
            except package.MontyError as error:
                raise _fault(error, package) from None
            yield Session(session, package, printed)

    async def aclose(self) -> None:
        self._pool = None
        await self._open.aclose()


def _fault(error: Any, package: Any) -> ProgramFault:
    if isinstance(error, package.MontyCrashedError):
        return ProgramFault("seconds" if error.timed_out else "lost")
    frames = error.traceback() if hasattr(error, "traceback") else []
    line, text = (frames[-1].line if frames else 0), str(error)
    inner = error.exception()
    if isinstance(error, package.MontySyntaxError) or (
        isinstance(inner, NotImplementedError) and "does not yet support" in text
    ):
        return ProgramFault("invalid", text, line)
    if isinstance(inner, TimeoutError) and "time limit exceeded" in text:
        return ProgramFault("seconds", line=line)
    if isinstance(inner, MemoryError):
        return ProgramFault("memory", line=line)
    return ProgramFault("failed", text, line)

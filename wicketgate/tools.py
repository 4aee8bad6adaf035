"""The registry in which a package puts its own tools: plain typed functions (UP-34; docs/guide/python-tools.md).

::

    registry = ToolRegistry()

    @registry.tool(read_only=True)
    def stock(product: Annotated[str, Field(description="Article number")], store: str = "main") -> int:
        '''How many pieces of a product are in a store.'''
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Self, TypeVar, overload

AnyFunction = Callable[..., Any]
F = TypeVar("F", bound=AnyFunction)


class ToolFailed(Exception):
    """A failure that a tool raises to explain it to the caller; *message* is shown as it is.

    The text of any other exception is only logged.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(frozen=True, slots=True)
class Media:
    """Bytes to be given back as an image or a sound, by their media type; of any other type as an embedded file."""

    data: bytes
    media_type: str
    name: str = ""


def _ignore(*values: object) -> None:
    return


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The call that is running; a parameter annotated with it is filled in and does not appear in the schema.

    Its methods never wait and never fail, and may be called from any thread.
    """

    actor: str = ""
    correlation_id: str = ""
    on_progress: Callable[[float, float | None, str | None], None] = field(default=_ignore, repr=False)
    on_log: Callable[[str, object, str | None], None] = field(default=_ignore, repr=False)
    is_over: Callable[[], bool] = field(default=_never, repr=False)

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Reports the progress to the caller, if the caller wants it."""
        self.on_progress(progress, total, message)

    def log(self, level: str, data: object, logger: str | None = None) -> None:
        """Sends the caller a log message; *level* is one of MCP's, from ``debug`` to ``emergency``."""
        self.on_log(level, data, logger)

    @property
    def cancelled(self) -> bool:
        """True if no caller waits for the result any more.

        A function that is not async cannot be ended from outside: in a long loop it should look here.
        """
        return self.is_over()


@dataclass(frozen=True, slots=True)
class RegisteredTool:
    function: AnyFunction
    name: str
    title: str | None
    description: str | None
    version: str | None
    hints: Mapping[str, bool]


class ToolRegistry:
    """Functions under their names, in the order in which they were registered."""

    def __init__(self) -> None:
        self._tools: dict[str, RegisteredTool] = {}

    @classmethod
    def of(cls, source: object) -> Self:
        """Returns the registry that *source* is, or one of its functions: a function, a list of them, or a module whose
        public functions become tools, except those that it imports. Raises TypeError or ValueError."""
        if isinstance(source, cls):
            return source
        if isinstance(source, ModuleType):
            own = (each for each in vars(source).values() if inspect.isfunction(each))
            functions: Sequence[object] = [
                each for each in own if each.__module__ == source.__name__ and each.__name__[0] != "_"
            ]
        else:
            functions = list(source) if isinstance(source, list | tuple) else [source]
        registry = cls()
        for function in functions:
            if not callable(function):
                raise TypeError(f"{function!r} is not a function")
            registry.tool(function)
        return registry

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[RegisteredTool]:
        return iter(tuple(self._tools.values()))

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        version: str | None = None,
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: AnyFunction | None = None,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        version: str | None = None,
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
    ) -> Any:
        """Registers a function, as ``@registry.tool`` or ``@registry.tool(read_only=True)``; it is left as it is.

        Name, description and the arguments' schema come from the function, its docstring and type hints where they are
        not given. An async function runs on the event loop and must not block it; any other runs in a thread. An async
        generator is a subscription, which is registered but never offered as a tool (CARD-18). Raises ValueError when
        the name is taken.
        """
        hints = {"readOnlyHint": read_only, "destructiveHint": destructive, "idempotentHint": idempotent}

        def register(made: AnyFunction) -> AnyFunction:
            own_name = name or getattr(made, "__name__", "")
            if not own_name or own_name == "<lambda>":
                raise ValueError(f"{made!r} needs a name: tool(name=...)")
            if own_name in self._tools:
                raise ValueError(f"two tools are called {own_name!r}")
            declared = {hint: value for hint, value in hints.items() if value is not None}
            self._tools[own_name] = RegisteredTool(made, own_name, title, description, version, declared)
            return made

        return register if function is None else register(function)

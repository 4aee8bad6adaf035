"""Conditions of access rules, in CEL: what they may read, what is checked when they are loaded, how they fail.

The types are checked at load, and an evaluation ends within ten thousand steps; whatever cannot be evaluated raises, so
that the rule can deny.
"""

from collections.abc import Mapping
from typing import Any

from cel_expr_python import cel  # type: ignore[import-untyped]

from app.auth.identity import Identity

MAX_CHARS = 2_000

_ABOUT_CALLER = {"actor": cel.Type.STRING, "permissions": cel.Type.List(cel.Type.STRING)}
_ABOUT_CALL = {**_ABOUT_CALLER, "args": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)}
_CALLER_ONLY = cel.NewEnv(variables=_ABOUT_CALLER)
_WITH_ARGS = cel.NewEnv(variables=_ABOUT_CALL)
# What the binding raises for values that CEL does not have, and for an evaluation over its budget.
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


class CannotEvaluate(Exception):
    """The condition has no answer for this call; the text is for the log."""


class Condition:
    """Compiled. *needs_args*: only a call can tell whether it holds; otherwise the identity alone does."""

    def __init__(self, source: str) -> None:
        """Raises ValueError that says what is wrong with *source*."""
        if not source.strip() or len(source) > MAX_CHARS:
            raise ValueError(f"must be an expression of 1 to {MAX_CHARS} characters")
        self.source = source
        self.needs_args = False
        try:
            self._compiled = _CALLER_ONLY.compile(source)
        except _FAILURES:
            self.needs_args = True
            self._compiled = _compiled_with_args(source)
        if self._compiled.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
            raise ValueError("must be true or false: compare something")

    def __eq__(self, other: object) -> bool:
        """Conditions of one source are the same, so that rules which are read again equal those in force."""
        return isinstance(other, Condition) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def holds(self, identity: Identity, args: Mapping[str, Any]) -> bool:
        """Takes some 5 µs and what it costs to convert *args*. Raises CannotEvaluate."""
        data = {"actor": identity.actor, "permissions": list(identity.permissions)}
        try:
            result = self._compiled.eval(data={**data, "args": dict(args)} if self.needs_args else data).plain_value()
        except _FAILURES as error:
            raise CannotEvaluate(str(error)) from None
        if not isinstance(result, bool):  # an error is a value of its own here, whose plain form is its text
            raise CannotEvaluate(str(result))
        return result


def _compiled_with_args(source: str) -> Any:
    try:
        return _WITH_ARGS.compile(source)
    except _FAILURES as error:
        problem = str(error).partition("\n")[0].removeprefix("INVALID_ARGUMENT: ")
        raise ValueError(f"not a condition over actor, permissions and args: {problem[:300]}") from None

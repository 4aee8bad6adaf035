"""One access rule: the tools it matches, the permissions it requires, its condition in CEL (DESIGN §2 "access").

The types of a condition are checked when it is loaded, and an evaluation ends within ten thousand steps. A condition
that cannot be evaluated raises, so that the rule can deny.
"""

import fnmatch
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from operator import eq
from typing import Any, Literal

from cel_expr_python import cel  # type: ignore[import-untyped]

from wicketgate.access.identity import Identity

_MAX_CONDITION_CHARS = 2_000
_ABOUT_CALLER = {"actor": cel.Type.STRING, "permissions": cel.Type.List(cel.Type.STRING)}
_ABOUT_CALL = {**_ABOUT_CALLER, "args": cel.Type.Map(cel.Type.STRING, cel.Type.DYN)}
_CALLER_ONLY = cel.NewEnv(variables=_ABOUT_CALLER)
_WITH_ARGS = cel.NewEnv(variables=_ABOUT_CALL)
# The binding raises these for values that CEL does not have, and for an evaluation over its budget.
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


class CannotEvaluate(Exception):
    """The condition has no value for this call. The text is for the log."""


class Condition:
    """A compiled condition. *needs_args*: it reads the arguments of a call; otherwise the identity decides it."""

    def __init__(self, source: str) -> None:
        """Raises ValueError that says what is wrong with *source*."""
        if not source.strip() or len(source) > _MAX_CONDITION_CHARS:
            raise ValueError(f"must be an expression of 1 to {_MAX_CONDITION_CHARS} characters")
        self.source = source
        self.needs_args = False
        try:
            self._compiled = _CALLER_ONLY.compile(source)
        except _FAILURES:
            self.needs_args = True
            self._compiled = _compile_with_args(source)
        if self._compiled.return_type() not in (cel.Type.BOOL, cel.Type.DYN):
            raise ValueError("must be true or false: compare something")

    def __eq__(self, other: object) -> bool:
        """Compares sources, so that rules which are read again equal those in force."""
        return isinstance(other, Condition) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def holds(self, identity: Identity, args: Mapping[str, Any]) -> bool:
        """Takes some 5 µs and the time to convert *args*. Raises CannotEvaluate."""
        data = {"actor": identity.actor, "permissions": list(identity.permissions)}
        try:
            result = self._compiled.eval(data={**data, "args": dict(args)} if self.needs_args else data).plain_value()
        except _FAILURES as error:
            raise CannotEvaluate(str(error)) from None
        # An error is a value of its own in CEL, whose plain form is its text.
        if not isinstance(result, bool):
            raise CannotEvaluate(str(result))
        return result


def _compile_with_args(source: str) -> Any:
    try:
        return _WITH_ARGS.compile(source)
    except _FAILURES as error:
        problem = str(error).partition("\n")[0].removeprefix("INVALID_ARGUMENT: ")
        raise ValueError(f"not a condition over actor, permissions and args: {problem[:300]}") from None


@dataclass(frozen=True, slots=True)
class AccessRule:
    """*match* is ``namespace:name`` with ``*``, ``?`` and ``[...]``, in the tool's own case.

    *require* lists permissions that are all needed, *require_any* those of which one is needed; *resource* with
    *action* is the permission ``<resource>:<action>``. No caller sees ``internal`` tools. *when* limits the rule to
    some callers or calls.
    """

    match: str
    require: tuple[str, ...] = ()
    require_any: tuple[str, ...] = ()
    resource: str = ""
    action: str = ""
    visibility: Literal["external", "internal"] = "external"
    when: Condition | None = None
    approval: Literal["never", "always"] = "never"
    effect: Literal["allow", "deny"] = "allow"

    def missing(self, identity: Identity) -> str:
        """Describes the permission that *identity* lacks; empty if none."""
        wanted = [*self.require, f"{self.resource}:{self.action}"] if self.resource else self.require
        lacking = [permission for permission in wanted if not identity.allows(permission)]
        if lacking:
            return f"needs the permission {lacking[0]}"
        if self.require_any and not any(map(identity.allows, self.require_any)):
            return f"needs one of the permissions {', '.join(self.require_any)}"
        return ""


def split_pattern(match: str) -> tuple[str, str]:
    """Returns the two globs of a rule's *match*. Raises ValueError."""
    namespace, colon, name = match.partition(":")
    if match == "*":
        return "*", "*"
    if not (namespace and colon and name) or ":" in name:
        raise ValueError("must be <namespace>:<tool>, for example github:delete_* or *:*")
    return namespace, name


def compile_glob(pattern: str) -> Callable[[str], bool] | None:
    """Returns None for a glob that matches everything."""
    if pattern == "*":
        return None
    plain = pattern.rstrip("*")
    # A name and a prefix are compared without an expression, which takes several times longer.
    if not re.search(r"[*?\[]", plain):
        return partial(eq, plain) if plain == pattern else lambda text: text.startswith(plain)
    expression = re.compile(fnmatch.translate(pattern))
    return lambda text: expression.match(text) is not None

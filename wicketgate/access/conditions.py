"""Conditions of access rules, written in CEL (ACCESS-11, ACCESS-12).

The types of a condition are checked when it is loaded, and an evaluation ends within ten thousand steps. One that
cannot be evaluated raises, so that the rule can deny. Conditions that are asked of the same calls can be joined, and
are passed over together where none of them holds."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from wicketgate.access.flow import NO_FLOW, CallFlow
from wicketgate.access.identity import Identity

_MAX_CONDITION_CHARS = 2_000
# The binding raises these for values that CEL does not have, and for an evaluation over its budget.
_FAILURES = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)

# An evaluation costs some 1.5 µs, and each of its conditions 0.1 µs.
_MOST_JOINED = 64


@dataclass(frozen=True, slots=True)
class _Cel:
    """The environments of conditions, and the types that a condition may have."""

    caller_only: Any
    with_args: Any
    with_flow: Any
    truth: Any
    anything: Any


@cache
def _cel() -> _Cel:
    """Imported for the first condition: the library takes 7 MB of memory, and few configurations have one."""
    from cel_expr_python import cel  # type: ignore[import-untyped]

    text, texts = cel.Type.STRING, cel.Type.List(cel.Type.STRING)
    anything = cel.Type.Map(cel.Type.STRING, cel.Type.DYN)
    caller = {"actor": text, "permissions": texts, "roles": texts, "claims": anything}
    call = {**caller, "args": anything}
    return _Cel(
        cel.NewEnv(variables=caller),
        cel.NewEnv(variables=call),
        cel.NewEnv(variables={**call, "seen": texts, "strange": texts}),
        cel.Type.BOOL,
        cel.Type.DYN,
    )


class CannotEvaluate(Exception):
    """The condition has no value for this call. The text is for the log."""


class Asked:
    """A caller, the arguments of one call, and what its session has read (*flow*), as conditions read them, converted
    once for all of them.

    Claims may be long, and are given only for conditions of which one may read them (*claims*).
    """

    __slots__ = ("_activation", "_data")

    def __init__(self, identity: Identity, args: Mapping[str, Any], *, claims: bool, flow: CallFlow = NO_FLOW) -> None:
        self._data: dict[str, Any] = {
            "actor": identity.actor,
            "permissions": list(identity.permissions),
            "roles": list(identity.roles),
            "claims": dict(identity.claim_values()) if claims else {},
            "args": dict(args),
            "seen": list(flow.seen),
            "strange": [each.text for each in flow.strange],
        }
        # False before the first condition: converting for one alone is cheaper within its evaluation.
        self._activation: Any = False

    def value_of(self, compiled: Any) -> Any:
        """Returns what *compiled* comes to: an error is a value of its own in CEL, whose plain form is its text. Raises
        CannotEvaluate.

        *compiled* must come to a truth value or an error. For the plain form of null, and of what holds one, the
        binding gives up a reference to None that it does not own, which ends the process in the long run (ACCESS-241).
        """
        try:
            if self._activation is False:
                self._activation = None
                return compiled.eval(None, self._data).plain_value()
            if self._activation is None:
                self._activation = _cel().with_flow.Activation(self._data)
            return compiled.eval(self._activation).plain_value()
        except _FAILURES as error:
            raise CannotEvaluate(str(error)) from None


class Condition:
    """A compiled condition. *needs_args*: it reads the arguments of a call, or its flow; otherwise the identity decides
    it. *reads_flow*: it reads ``seen`` or ``strange``."""

    def __init__(self, source: str) -> None:
        """Raises ValueError that says what is wrong with *source*."""
        if not source.strip() or len(source) > _MAX_CONDITION_CHARS:
            raise ValueError(f"must be an expression of 1 to {_MAX_CONDITION_CHARS} characters")
        self.source = source
        self.needs_args = self.reads_flow = False
        self.reads_claims = "claims" in source
        environment = _cel().caller_only
        try:
            compiled = environment.compile(source)
        except _FAILURES:
            self.needs_args = True
            environment = _cel().with_flow
            compiled = _compile(environment, source)
            try:
                _cel().with_args.compile(source)
            except _FAILURES:
                self.reads_flow = True
        kind = compiled.return_type()
        if kind == _cel().anything:
            # An error then, where it is no truth value.
            compiled = _compile(environment, f"({source}\n) ? true : false")
        elif kind != _cel().truth:
            raise ValueError("must be true or false: compare something")
        self._compiled = compiled

    def __eq__(self, other: object) -> bool:
        """Compares sources, so that rules which are read again equal those in force."""
        return isinstance(other, Condition) and other.source == self.source

    def __hash__(self) -> int:
        return hash(self.source)

    def holds(self, asked: Asked) -> bool:
        """Takes some 1.5 µs. Raises CannotEvaluate."""
        result = asked.value_of(self._compiled)
        if not isinstance(result, bool):
            raise CannotEvaluate(str(result))
        return result


@lru_cache(maxsize=256)
def condition_of(source: str) -> Condition:
    """Returns the Condition of *source*, the same one for the checks that follow each other when a rule is read. Raises
    ValueError as it does."""
    return Condition(source)


class Joined:
    """Conditions that are asked together: ``(one) || (another)``.

    In CEL this is false only where each of them can be evaluated and is false. The budget of steps is one for all, so
    an evaluation over it says nothing of a single one.
    """

    def __init__(self, conditions: Iterable[Condition]) -> None:
        """*conditions* are two at least. Raises ValueError if they cannot be joined."""
        # A line ends what a condition may end with, a comment.
        source = " || ".join(f"({each.source}\n)" for each in conditions)
        try:
            self._compiled = _cel().with_flow.compile(source)
        except _FAILURES as error:
            raise ValueError(str(error)) from None

    def none_holds(self, asked: Asked) -> bool:
        """Returns true if no condition holds. False says nothing of any: each has to be asked alone then."""
        try:
            return asked.value_of(self._compiled) is False
        except CannotEvaluate:
            return False


def join(conditions: Mapping[int, Condition]) -> dict[int, Joined]:
    """Joins neighbours, at most 64 at once, and returns by index the Joined that a condition is in. One that stays
    alone is left out."""
    found: dict[int, Joined] = {}
    indexes = list(conditions)
    for start in range(0, len(indexes), _MOST_JOINED):
        together = indexes[start : start + _MOST_JOINED]
        if len(together) > 1:
            # Very long ones are too much for one expression.
            with suppress(ValueError):
                found |= dict.fromkeys(together, Joined(conditions[index] for index in together))
    return found


def _compile(environment: Any, source: str) -> Any:
    try:
        return environment.compile(source)
    except _FAILURES as error:
        problem = str(error).partition("\n")[0].removeprefix("INVALID_ARGUMENT: ")
        names = "actor, permissions, roles, claims, args, seen and strange"
        raise ValueError(f"not a condition over {names}: {problem[:300]}") from None

"""Decides which tools a caller may see and call. Every way to a tool asks this one policy (ACCESS-13).

The base is the permission ``tools:<namespace>:<name>``. Then the first rule decides that matches the tool and whose
condition holds (ACCESS-9, ACCESS-10). A tool that a caller may not use does not exist for it. A condition on arguments
is known only at the call: until then a tool exists if some call of it could be allowed, and a call that is not allowed
is ``Denied``.

The types of a condition, which is written in CEL, are checked when it is loaded, and an evaluation ends within ten
thousand steps. A condition that cannot be evaluated raises, so that the rule can deny."""

import fnmatch
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from operator import eq
from typing import Any, Literal

from cel_expr_python import cel  # type: ignore[import-untyped]

from wicketgate.access.identity import Identity, Reach, reach_of

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


_MAX_KEPT_TOOLS = 50_000


@dataclass(frozen=True, slots=True)
class Allowed:
    """The tool may be found and called."""


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """The tool may be found. Each call needs the owner's approval first."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """The tool does not exist for this caller. *reason* is for the operator, never for a client."""

    reason: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The tool may be found, but this call is not allowed. *reason* as for Hidden."""

    reason: str


Outcome = Allowed | NeedsApproval | Hidden
Decision = Outcome | Denied


@dataclass(frozen=True, slots=True)
class _Effect:
    """The meaning of a rule for one identity: *outcome*, if the condition on arguments holds or there is none."""

    outcome: Outcome
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of one identity: its reach, and the effect of each rule; None for a rule that does not apply to it.
    Callers with equal rights see the same tools."""

    reach: Reach
    effects: tuple[_Effect | None, ...]
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.reach, self.effects)))

    def __hash__(self) -> int:
        """Computed once: every call looks up its audience by its rights, and there may be hundreds of rules."""
        return self._hash

    @property
    def everything(self) -> bool:
        """Returns whether no tool is hidden, so that no list of tools has to be filtered."""
        return self.reach.everything and not any(each and isinstance(each.outcome, Hidden) for each in self.effects)


@dataclass(frozen=True, slots=True)
class RuleStep:
    """One rule on the way to a decision. *when* is its condition on arguments, if any; *source* is the rule itself."""

    rule: str
    when: str
    outcome: Outcome
    source: AccessRule


class AccessPolicy:
    """The rules in force. Immutable but for its caches; a reload replaces it as a whole."""

    def __init__(self, rules: Sequence[AccessRule] = ()) -> None:
        self.rules = tuple(rules)
        globs = [split_pattern(rule.match) for rule in self.rules]
        self._patterns = [(compile_glob(namespace), compile_glob(name)) for namespace, name in globs]
        self._by_actor = any(rule.when and not rule.when.needs_args for rule in self.rules)
        self._cached_rights = lru_cache(maxsize=1_024)(self._make_rights)
        self._in_namespace = lru_cache(maxsize=1_024)(self._match_namespace)
        self._chain = lru_cache(maxsize=_MAX_KEPT_TOOLS)(self._match)

    def decide(self, identity: Identity, namespace: str, name: str, args: Mapping[str, Any] | None = None) -> Decision:
        """Decides about ``namespace:name`` for *identity*: without *args* about the tool, with them about this call."""
        rights, chain = self.rights(identity), self._chain(namespace, name)
        if not rights.reach.covers(namespace, name):
            return Hidden(f"needs the permission tools:{namespace}:{name}")
        found = _best_outcome(rights, chain)
        # Without arguments, or without rules, there is nothing more to decide.
        if args is None or isinstance(found, Hidden) or not chain:
            return found
        called = self._outcome_of_call(rights, chain, identity, args)
        return Denied(called.reason) if isinstance(called, Hidden) else called

    def rules_on_all_of(self, identity: Identity, namespace: str) -> Outcome:
        """Decides by the rules about every tool of *namespace*, whatever the permissions of *identity*. They also hold
        for a server's resources and prompts."""
        return _best_outcome(self.rights(identity), self._chain(namespace, "*"))

    def rights(self, identity: Identity) -> Rights:
        return self._cached_rights(identity.actor if self._by_actor else "", identity.permissions)

    def visible(self, rights: Rights, tools: Iterable[tuple[str, str, str]]) -> frozenset[str]:
        """Returns the ids of those of *tools* (id, namespace, name) that exist for a holder of *rights*."""
        shown: dict[tuple[int, ...], bool] = {}
        found: list[str] = []
        for tool_id, namespace, name in tools:
            if not rights.reach.covers(namespace, name):
                continue
            # Most tools share their chain with many others.
            chain = self._chain(namespace, name)
            if chain not in shown:
                shown[chain] = not isinstance(_best_outcome(rights, chain), Hidden)
            if shown[chain]:
                found.append(tool_id)
        return frozenset(found)

    def steps(self, identity: Identity, namespace: str, name: str) -> Sequence[RuleStep]:
        """Returns the rules of which the first that holds decides for *identity*, for a report to the operator."""
        return [
            RuleStep(
                self._label(index),
                effect.condition.source if effect.condition else "",
                effect.outcome,
                self.rules[index],
            )
            for index, effect in _effects(self.rights(identity), self._chain(namespace, name))
        ]

    def _outcome_of_call(
        self, rights: Rights, chain: Sequence[int], identity: Identity, args: Mapping[str, Any]
    ) -> Outcome:
        for index, effect in _effects(rights, chain):
            try:
                if effect.condition is None or effect.condition.holds(identity, args):
                    return effect.outcome
            except CannotEvaluate as failure:
                return self._not_evaluated(index, failure)
        return Allowed()

    def _make_rights(self, actor: str, permissions: tuple[str, ...]) -> Rights:
        identity = Identity(actor, permissions)
        return Rights(reach_of(permissions), tuple(self._effect(index, identity) for index in range(len(self.rules))))

    def _effect(self, index: int, identity: Identity) -> _Effect | None:
        rule = self.rules[index]
        # A condition on the caller alone is decided here, once; one on arguments is kept for the call.
        if rule.when is not None and not rule.when.needs_args:
            try:
                return _Effect(self._outcome(index, identity), None) if rule.when.holds(identity, {}) else None
            except CannotEvaluate as failure:
                return _Effect(self._not_evaluated(index, failure), None)
        return _Effect(self._outcome(index, identity), rule.when)

    def _outcome(self, index: int, identity: Identity) -> Outcome:
        rule = self.rules[index]
        if rule.visibility == "internal":
            return Hidden(f"{self._label(index)}: internal")
        if rule.effect == "deny":
            return Hidden(f"{self._label(index)}: denied")
        if missing := rule.missing(identity):
            return Hidden(f"{self._label(index)}: {missing}")
        return NeedsApproval() if rule.approval == "always" else Allowed()

    def _not_evaluated(self, index: int, failure: CannotEvaluate) -> Hidden:
        return Hidden(f"{self._label(index)}: when cannot be evaluated: {failure}")

    def _label(self, index: int) -> str:
        return f"access[{index}] ({self.rules[index].match})"

    def _match(self, namespace: str, name: str) -> tuple[int, ...]:
        """Returns the rules that match a tool, up to the first without a condition: those behind it are not reached."""
        chain: list[int] = []
        for index in self._in_namespace(namespace):
            glob = self._patterns[index][1]
            if glob is None or glob(name):
                chain.append(index)
                if self.rules[index].when is None:
                    break
        return tuple(chain)

    def _match_namespace(self, namespace: str) -> tuple[int, ...]:
        return tuple(index for index, (glob, _) in enumerate(self._patterns) if glob is None or glob(namespace))


def _effects(rights: Rights, chain: Sequence[int]) -> Iterator[tuple[int, _Effect]]:
    """Yields the effects of the rules in *chain*, up to the first that holds without a condition on arguments."""
    for index in chain:
        effect = rights.effects[index]
        if effect is not None:
            yield index, effect
            if effect.condition is None:
                break


def _best_outcome(rights: Rights, chain: Sequence[int]) -> Outcome:
    """Returns the most favourable outcome that a call could have. It decides whether the tool exists at all."""
    effects = [effect for _, effect in _effects(rights, chain)]
    # If no rule holds, the permission alone decides.
    may_hold_none = not effects or effects[-1].condition is not None
    if may_hold_none or any(isinstance(effect.outcome, Allowed) for effect in effects):
        return Allowed()
    approvals = (effect.outcome for effect in effects if isinstance(effect.outcome, NeedsApproval))
    return next(approvals, effects[0].outcome)

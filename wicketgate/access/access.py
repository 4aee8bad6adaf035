"""Who may see and call which tool: the one decision that every way to a tool asks for (S4 §5, DESIGN §3).

The base is the permission ``tools:<namespace>:<name>``. Then the first rule decides that matches the tool and whose
condition holds. What a caller may not use does not exist for it. A condition on arguments is known only at the call:
until then a tool is there if some call of it could be allowed, and a call that is not allowed is ``Denied``.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from wicketgate.access.condition import CannotEvaluate, Condition
from wicketgate.access.identity import Identity
from wicketgate.access.reach import Reach, reach_of
from wicketgate.access.rule import AccessRule, compile_glob, split_pattern

_MAX_KEPT_TOOLS = 50_000


@dataclass(frozen=True, slots=True)
class Visible:
    """May be found and called."""


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """May be found; each call needs the owner's word first."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """Does not exist for this caller. *reason* is for the operator, never for a client."""

    reason: str


@dataclass(frozen=True, slots=True)
class Denied:
    """May be found, but this call is not allowed. *reason* as for Hidden."""

    reason: str


Decision = Visible | NeedsApproval | Hidden | Denied


@dataclass(frozen=True, slots=True)
class _Stand:
    """What a rule means for one identity: *outcome*, if the condition on arguments holds or there is none."""

    outcome: Visible | NeedsApproval | Hidden
    condition: Condition | None


@dataclass(frozen=True, slots=True)
class Rights:
    """What one identity holds, worked out against every rule; a rule that is not for it has no stand. Callers with
    equal rights see the same tools."""

    reach: Reach
    stands: tuple[_Stand | None, ...]
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.reach, self.stands)))

    def __hash__(self) -> int:
        """Worked out once: every call looks up its audience by these, and there may be hundreds of rules."""
        return self._hash

    @property
    def everything(self) -> bool:
        """Whether no tool is hidden from it, so that nobody needs to go through them."""
        return self.reach.everything and not any(s and isinstance(s.outcome, Hidden) for s in self.stands)


@dataclass(frozen=True, slots=True)
class Step:
    """One rule on the way to a decision. *when* is its condition on arguments, if it has one; *source* is the rule."""

    rule: str
    when: str
    outcome: Visible | NeedsApproval | Hidden
    source: AccessRule


class AccessPolicy:
    """The rules in force. Immutable but for what it remembers; replaced whole by whoever holds it."""

    def __init__(self, rules: Sequence[AccessRule] = ()) -> None:
        self.rules = tuple(rules)
        globs = [split_pattern(rule.match) for rule in self.rules]
        self._patterns = [(compile_glob(namespace), compile_glob(name)) for namespace, name in globs]
        self._in_namespace: dict[str, tuple[int, ...]] = {}
        self._chains: dict[tuple[str, str], tuple[int, ...]] = {}
        self._by_actor = any(rule.when and not rule.when.needs_args for rule in self.rules)
        self._worked_out = lru_cache(maxsize=1_024)(self._work_out)

    def decide(self, identity: Identity, namespace: str, name: str, args: Mapping[str, Any] | None = None) -> Decision:
        """What becomes of ``namespace:name`` for *identity*: without *args*, of the tool; with them, of this call."""
        rights, chain = self.rights(identity), self._chain(namespace, name)
        if not rights.reach.covers(namespace, name):
            return Hidden(f"needs the permission tools:{namespace}:{name}")
        found = _found(rights, chain)
        if args is None or isinstance(found, Hidden) or not chain:
            return found
        called = self._called(rights, chain, identity, args)
        return Denied(called.reason) if isinstance(called, Hidden) else called

    def rules_on_all_of(self, identity: Identity, namespace: str) -> Visible | NeedsApproval | Hidden:
        """What the rules about every tool of *namespace* say to *identity*, whatever its permissions: they hold for
        what else a server has too."""
        return _found(self.rights(identity), self._chain(namespace, "*"))

    def rights(self, identity: Identity) -> Rights:
        return self._worked_out(identity.actor if self._by_actor else "", identity.permissions)

    def visible(self, rights: Rights, tools: Iterable[tuple[str, str, str]]) -> frozenset[str]:
        """The ids of those of *tools* (id, namespace, name) that exist for who holds *rights*."""
        shown: dict[tuple[int, ...], bool] = {}
        found: list[str] = []
        for tool_id, namespace, name in tools:
            if not rights.reach.covers(namespace, name):
                continue
            chain = self._chain(namespace, name)
            if chain not in shown:
                shown[chain] = not isinstance(_found(rights, chain), Hidden)
            if shown[chain]:
                found.append(tool_id)
        return frozenset(found)

    def steps(self, identity: Identity, namespace: str, name: str) -> Sequence[Step]:
        """The rules of which the first that holds decides for *identity*, to be told to an operator."""
        stands = self.rights(identity).stands
        steps: list[Step] = []
        for index in self._chain(namespace, name):
            stand = stands[index]
            if stand is not None:
                when = stand.condition.source if stand.condition else ""
                steps.append(Step(self._named(index), when, stand.outcome, self.rules[index]))
                if stand.condition is None:
                    break
        return steps

    def _called(
        self, rights: Rights, chain: Sequence[int], identity: Identity, args: Mapping[str, Any]
    ) -> Visible | NeedsApproval | Hidden:
        for index in chain:
            stand = rights.stands[index]
            if stand is None:
                continue
            if stand.condition is not None:
                try:
                    if not stand.condition.holds(identity, args):
                        continue
                except CannotEvaluate as failure:
                    return Hidden(f"{self._named(index)}: when cannot be evaluated: {failure}")
            return stand.outcome
        return Visible()

    def _work_out(self, actor: str, permissions: tuple[str, ...]) -> Rights:
        identity = Identity(actor, permissions)
        return Rights(reach_of(permissions), tuple(self._stand(index, identity) for index in range(len(self.rules))))

    def _stand(self, index: int, identity: Identity) -> _Stand | None:
        rule = self.rules[index]
        if rule.when is not None and not rule.when.needs_args:
            try:
                if not rule.when.holds(identity, {}):
                    return None
            except CannotEvaluate as failure:
                return _Stand(Hidden(f"{self._named(index)}: when cannot be evaluated: {failure}"), None)
        condition = rule.when if rule.when is not None and rule.when.needs_args else None
        return _Stand(self._outcome(index, identity), condition)

    def _outcome(self, index: int, identity: Identity) -> Visible | NeedsApproval | Hidden:
        rule = self.rules[index]
        if rule.visibility == "internal":
            return Hidden(f"{self._named(index)}: internal")
        if rule.effect == "deny":
            return Hidden(f"{self._named(index)}: denied")
        if missing := rule.missing(identity):
            return Hidden(f"{self._named(index)}: {missing}")
        return NeedsApproval() if rule.approval == "always" else Visible()

    def _named(self, index: int) -> str:
        return f"access[{index}] ({self.rules[index].match})"

    def _chain(self, namespace: str, name: str) -> tuple[int, ...]:
        """The rules that match a tool, as far as one without a condition; worked out once for each tool."""
        chain = self._chains.get((namespace, name))
        if chain is None:
            if len(self._chains) >= _MAX_KEPT_TOOLS:
                self._chains.clear()
                self._in_namespace.clear()
            chain = self._chains[namespace, name] = self._match(namespace, name)
        return chain

    def _match(self, namespace: str, name: str) -> tuple[int, ...]:
        candidates = self._in_namespace.get(namespace)
        if candidates is None:
            matching = (index for index, (glob, _) in enumerate(self._patterns) if glob is None or glob(namespace))
            candidates = self._in_namespace[namespace] = tuple(matching)
        chain: list[int] = []
        for index in candidates:
            glob = self._patterns[index][1]
            if glob is None or glob(name):
                chain.append(index)
                if self.rules[index].when is None:
                    break
        return tuple(chain)


def _found(rights: Rights, chain: Sequence[int]) -> Visible | NeedsApproval | Hidden:
    """The kindest of the outcomes that a call could have: whether the tool is there at all."""
    possible: list[Visible | NeedsApproval | Hidden] = []
    for index in chain:
        stand = rights.stands[index]
        if stand is not None:
            possible.append(stand.outcome)
            if stand.condition is None:
                break
    else:
        possible.append(Visible())
    if any(isinstance(outcome, Visible) for outcome in possible):
        return Visible()
    return next((outcome for outcome in possible if isinstance(outcome, NeedsApproval)), possible[0])

"""Decides which tools a caller may see and call. Every way to a tool asks this one policy (ACCESS-13).

The base is the permission ``tools:<namespace>:<name>``. Then the first rule decides that matches the tool and whose
condition holds (ACCESS-9, ACCESS-10). A tool that a caller may not use does not exist for it. A condition on arguments
is known only at the call: until then a tool exists if some call of it could be allowed, and a call that is not allowed
is ``Denied``.

A tool has several names (``ToolNames``), which servers and plugins choose. The rules are gone through once for each,
and of the outcomes the strictest counts, so that no name loosens anything (ACCESS-47). Nearly all tools have the same
rules under every name, and these are decided as if they had one.

Of the rules with one pattern, those whose conditions read arguments are asked together first, so that a call pays
little for the many that are false (ACCESS-202).

A virtual gate judges each call that comes through it a second time: the strictest outcome of both counts, so a gate
only takes away (ACCESS-360)."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import groupby
from typing import Any, Literal

from wicketgate.access.approvers import Need, Needs, described
from wicketgate.access.conditions import Asked, CannotEvaluate, Condition, Joined, join
from wicketgate.access.flow import NO_FLOW, CallFlow
from wicketgate.access.identity import ROLE_PREFIX, Identity, Reach, reach_of
from wicketgate.access.tool_groups import Seen, ToolGroups, missing_permission
from wicketgate.catalog.name_patterns import compile_glob, split_pattern
from wicketgate.catalog.tool_id import ToolNames, namespace_of


@dataclass(frozen=True, slots=True)
class AccessRule:
    """*match* is ``namespace:name`` with ``*``, ``?`` and ``[...]``, in the tool's own case.

    *require* lists permissions and roles (``role:lead``) that are all needed, *require_any* those of which one is
    needed. No caller sees ``internal`` tools.
    *when* limits the rule to some callers or calls. *approval*: ``always`` is one of the caller, a Need one of others.
    """

    match: str
    require: tuple[str, ...] = ()
    require_any: tuple[str, ...] = ()
    visibility: Literal["external", "internal"] = "external"
    when: Condition | None = None
    approval: Literal["never", "always"] | Need = "never"
    effect: Literal["allow", "deny"] = "allow"

    def missing(self, identity: Identity) -> str:
        """Describes the permission or role that *identity* lacks; empty if none."""
        lacking = [permission for permission in self.require if not identity.allows(permission)]
        if lacking:
            role, name = lacking[0].startswith(ROLE_PREFIX), lacking[0].removeprefix(ROLE_PREFIX)
            return f"needs the {'role' if role else 'permission'} {name}"
        if self.require_any and not any(map(identity.allows, self.require_any)):
            return f"needs one of {', '.join(self.require_any)}"
        return ""


@dataclass(frozen=True, slots=True)
class VirtualGate:
    """A part of the gate, at a path of its own: the tools that one of *tools* matches, as rules do, if the first of
    *rules* that holds allows it, or none holds."""

    tools: tuple[str, ...]
    rules: tuple[AccessRule, ...] = ()


_NO_GATES: Mapping[str, VirtualGate] = {}
_MAX_KEPT_TOOLS = 50_000
_MAX_KEPT_RIGHTS = 4_096


@dataclass(frozen=True, slots=True)
class Allowed:
    """The tool may be found and called."""


@dataclass(frozen=True, slots=True)
class NeedsApproval:
    """The tool may be found. Each call needs an approval first: of all *needs*, or of its caller where there are
    none."""

    needs: Needs = ()

    def __str__(self) -> str:
        return f"approval of {described(self.needs)}" if self.needs else "approval"


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

AccessDefault = Literal["allow", "deny"]
"""The decision about a tool that no rule decides on, which the caller has the permission for."""

_DEFAULTS: Mapping[AccessDefault, Outcome] = {
    "allow": Allowed(),
    "deny": Hidden("access_default: deny, and no rule decides on it"),
}
_STRICTNESS: Mapping[type[Outcome], int] = {Allowed: 0, NeedsApproval: 1, Hidden: 2}

_Chains = tuple["_Row", ...]
"""The rules that match a tool, by namespace: those of the whole gate, then those of virtual ones."""


@dataclass(frozen=True, slots=True)
class _Row:
    """The different chains of a tool's names in one namespace, by the rules of a *gate*; empty is the whole one."""

    gate: str
    chains: tuple["_Chain", ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Chain:
    """The rules that match a name, by their places; those of one policy are one object where the rules are the same.
    *parts* are these in their order, neighbours that can be passed over together with what joins them."""

    rules: tuple[int, ...]
    parts: tuple[tuple[Joined | None, tuple[int, ...]], ...]


Groups = ToolGroups[_Chains]
"""Tools in groups by the rules of one policy."""


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
    default: AccessDefault = "allow"
    gate: str = ""
    _hash: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.reach, self.effects, self.default, self.gate)))

    def __hash__(self) -> int:
        """Computed once: every call looks up its audience by its rights, and there may be hundreds of rules."""
        return self._hash

    @property
    def everything(self) -> bool:
        """Returns whether no tool is hidden, so that no list of tools has to be filtered."""
        if not self.reach.everything or self.default == "deny" or self.gate:
            return False
        return not any(each and isinstance(each.outcome, Hidden) for each in self.effects)


@dataclass(frozen=True, slots=True)
class RuleStep:
    """One rule on the way to a decision. *name* is the name that it matches, as ``namespace:name``; *when* is its
    condition on arguments, if any; *source* is the rule itself."""

    name: str
    rule: str
    when: str
    outcome: Outcome
    source: AccessRule


class AccessPolicy:
    """The rules in force, and the virtual *gates* by name. Immutable but for its caches; a reload replaces it as a
    whole."""

    def __init__(
        self,
        rules: Sequence[AccessRule] = (),
        default: AccessDefault = "allow",
        gates: Mapping[str, VirtualGate] = _NO_GATES,
    ) -> None:
        self.gates = gates
        # The rules of the whole gate, then those of each virtual one with a last rule for the rest of its tools.
        every = [("", f"access[{at}] ({rule.match})", rule) for at, rule in enumerate(rules)]
        for gate, each in gates.items():
            place = f"gates.{gate}"
            every += [(gate, f"{place}.access[{at}] ({rule.match})", rule) for at, rule in enumerate(each.rules)]
            every.append((gate, f"{place}.tools", AccessRule("*:*")))
        self._gate_of = [gate for gate, _, _ in every]
        self.labels = tuple(label for _, label, _ in every)
        """The place of each rule in the configuration."""
        self.rules = tuple(rule for _, _, rule in every)
        self._tools_of = {gate: [_globs(match) for match in each.tools] for gate, each in gates.items()}
        self.default: AccessDefault = default
        self.decision_without_rules = _DEFAULTS[default]
        """The decision about a tool that no rule decides on, which the caller has the permission for."""
        self._patterns = [_globs(rule.match) for rule in self.rules]
        self._by_actor = any(rule.when and not rule.when.needs_args for rule in self.rules)
        self._by_claims = any(rule.when and rule.when.reads_claims for rule in self.rules)
        self.reads_flow = any(rule.when and rule.when.reads_flow for rule in self.rules)
        """A decision about a call needs its flow."""
        self._joined = _joined(self.rules)
        self._about_callers = join(
            {index: rule.when for index, rule in enumerate(self.rules) if rule.when and not rule.when.needs_args}
        )
        # The effects that are the same for all callers: only permissions and conditions about a caller make others.
        self._granted = [_Effect(self._outcome(index), _on_args(rule)) for index, rule in enumerate(self.rules)]
        self._cached_rights = lru_cache(maxsize=_MAX_KEPT_RIGHTS)(self._make_rights)
        self._one_object = lru_cache(maxsize=_MAX_KEPT_RIGHTS)(_itself)
        self._hidden = lru_cache(maxsize=_MAX_KEPT_RIGHTS)(self._make_hidden)
        self._in_namespace = lru_cache(maxsize=1_024)(self._match_namespace)
        self._chain_of = lru_cache(maxsize=_MAX_KEPT_TOOLS)(self._make_chain)
        self._chain = lru_cache(maxsize=_MAX_KEPT_TOOLS)(self._match)
        self._chains = lru_cache(maxsize=_MAX_KEPT_TOOLS)(self._match_names)
        self._best_of = lru_cache(maxsize=_MAX_KEPT_TOOLS)(_best_outcome)

    def decide(
        self, identity: Identity, names: ToolNames, args: Mapping[str, Any] | None = None, flow: CallFlow = NO_FLOW
    ) -> Decision:
        """Decides about a tool for *identity*: without *args* about the tool, with them about this call."""
        rights, chains = self.rights(identity), self._chains(names, identity.gate)
        if not rights.reach.everything and (missing := missing_permission(rights.reach, names)):
            return Hidden(f"needs the permission {missing}")
        found = self._best(rights, chains)
        # Without arguments, or without rules, there is nothing more to decide.
        if args is None or isinstance(found, Hidden):
            return found
        if len(chains) == 1 and len(chains[0].chains) == 1:
            (chain,) = chains[0].chains
            if not chain.rules:
                return found
            asked = self._asked(identity, args, flow)
            called = self._outcome_of_call(rights, chain, asked) or self.decision_without_rules
        else:
            asked = self._asked(identity, args, flow)
            called = self._combined(rights, chains, lambda chain: self._outcome_of_call(rights, chain, asked))
        return Denied(called.reason) if isinstance(called, Hidden) else called

    def may_know(self, identity: Identity, server: str) -> bool:
        """True unless no tool that *server* could have would be one of this caller's."""
        of_server = f"tools:{server}:"
        allowed = identity.allows(f"{of_server}*") or any(each.startswith(of_server) for each in identity.permissions)
        return allowed and not isinstance(self.rules_on_all_of(identity, server), Hidden)

    def rules_on_all_of(self, identity: Identity, server: str) -> Outcome:
        """Decides by the rules about every tool of the upstream *server*, whatever the permissions of *identity*. They
        also hold for its resources and prompts, as for a call without arguments (ACCESS-74)."""
        return self.rules_on(identity, ((namespace_of(server), ("*",)),))

    def rules_on(self, identity: Identity, names: ToolNames) -> Outcome:
        """Decides by the rules alone about what has *names*, whatever the permissions of *identity*, as for a call
        without arguments (ACCESS-78)."""
        rights, asked, chains = self.rights(identity), self._asked(identity, {}), self._chains(names, identity.gate)
        return self._combined(rights, chains, lambda chain: self._outcome_of_call(rights, chain, asked))

    def same(self, other: "AccessPolicy") -> bool:
        """Returns whether both decide alike, because their rules and defaults are equal."""
        return (self.rules, self.default, self.gates) == (other.rules, other.default, other.gates)

    def rights(self, identity: Identity) -> Rights:
        """Returns the rights of *identity*; equal ones are one object."""
        if not self._by_actor:
            return self._cached_rights("", identity.permissions, identity.roles, "", identity.gate)
        claims = identity.claims if self._by_claims else ""
        return self._cached_rights(identity.actor, identity.permissions, identity.roles, claims, identity.gate)

    def grouped(self, tools: Iterable[tuple[str, ToolNames]]) -> Groups:
        """Returns *tools* (id, names) in groups about which most callers have one decision."""
        return ToolGroups(tools, lambda names: self._chains(names, None))

    def seen(self, rights: Rights, groups: Groups) -> Seen:
        """Returns which of the tools in *groups* exist for a holder of *rights*."""
        return groups.seen(rights.reach, lambda chains: not isinstance(self._best(rights, chains), Hidden))

    def steps(self, identity: Identity, names: ToolNames) -> Sequence[RuleStep]:
        """Returns the rules of which the first that holds decides for *identity*, for a report to the operator: one
        series for each name that different rules match."""
        steps: list[RuleStep] = []
        for gate in dict.fromkeys(("", identity.gate)):
            for namespace, own in names:
                known: set[_Chain] = set()
                for name in own:
                    chain = self._chain(gate, namespace, name)
                    if chain not in known:
                        known.add(chain)
                        through = f" through {gate}" if gate else ""
                        steps += self._steps(identity, f"{namespace}:{name}{through}", chain)
        return steps

    def _steps(self, identity: Identity, name: str, chain: _Chain) -> Iterator[RuleStep]:
        for index, effect in _effects(self.rights(identity), chain.rules):
            condition = effect.condition.source if effect.condition else ""
            yield RuleStep(name, self.labels[index], condition, effect.outcome, self.rules[index])

    def _best(self, rights: Rights, chains: _Chains) -> Outcome:
        # Nearly all tools have one chain; this is the way of every call.
        if len(chains) == 1 and len(chains[0].chains) == 1:
            (chain,) = chains[0].chains
            return (chain.rules and self._best_of(rights, chain)) or self.decision_without_rules
        return self._combined(rights, chains, lambda chain: self._best_of(rights, chain))

    def _combined(self, rights: Rights, chains: _Chains, outcome: Callable[[_Chain], Outcome | None]) -> Outcome:
        """Returns the strictest outcome of all *chains* that hold for *rights*. A namespace in which no rule decides
        gets the default; in a virtual gate it has no tool there."""
        default = self.decision_without_rules
        by_namespace = (
            _strictest(found for chain in row.chains if (found := outcome(chain)))
            or (Hidden(f"gates.{row.gate}.tools does not match it") if row.gate else default)
            for row in chains
            if row.gate in ("", rights.gate)
        )
        return _strictest(by_namespace) or default

    def _asked(self, identity: Identity, args: Mapping[str, Any], flow: CallFlow = NO_FLOW) -> Asked:
        return Asked(identity, args, claims=self._by_claims, flow=flow)

    def _outcome_of_call(self, rights: Rights, chain: _Chain, asked: Asked) -> Outcome | None:
        """Returns None if no rule of *chain* holds."""
        for together, rules in chain.parts:
            if together is not None and together.none_holds(asked):
                continue
            for index, effect in _effects(rights, rules):
                if effect.condition is None:
                    return effect.outcome
                try:
                    if effect.condition.holds(asked):
                        return effect.outcome
                except CannotEvaluate as failure:
                    return self._not_evaluated(index, failure)
        return None

    def _make_rights(
        self, actor: str, permissions: tuple[str, ...], roles: tuple[str, ...], claims: str, gate: str
    ) -> Rights:
        if gate and gate not in self.gates:
            permissions = ()  # a virtual gate that is not known here has no tools
        identity = Identity(actor, permissions, roles=roles, claims=claims)
        asked = self._asked(identity, {})
        false = {each for each in dict.fromkeys(self._about_callers.values()) if each.none_holds(asked)}
        effects = tuple(
            None
            if self._gate_of[index] not in ("", gate) or self._about_callers.get(index) in false
            else self._effect(index, identity, asked)
            for index in range(len(self.rules))
        )
        return self._one_object(Rights(reach_of(permissions), effects, self.default, gate))

    def _effect(self, index: int, identity: Identity, asked: Asked) -> _Effect | None:
        rule = self.rules[index]
        # A condition on the caller alone is decided here, once; one on arguments is kept for the call.
        if rule.when is not None and not rule.when.needs_args:
            try:
                if not rule.when.holds(asked):
                    return None
            except CannotEvaluate as failure:
                return _Effect(self._not_evaluated(index, failure), None)
        if isinstance(self._granted[index].outcome, Hidden):
            return self._granted[index]
        missing = rule.missing(identity)
        return self._hidden(index, missing) if missing else self._granted[index]

    def _outcome(self, index: int) -> Outcome:
        """Returns the outcome for a caller that lacks no permission."""
        rule = self.rules[index]
        if rule.visibility == "internal":
            return Hidden(f"{self.labels[index]}: internal")
        if rule.effect == "deny":
            return Hidden(f"{self.labels[index]}: denied")
        match rule.approval:
            case "never":
                return Allowed()
            case "always":
                return NeedsApproval()
            case need:
                return NeedsApproval((need,))

    def _make_hidden(self, index: int, missing: str) -> _Effect:
        return _Effect(Hidden(f"{self.labels[index]}: {missing}"), _on_args(self.rules[index]))

    def _not_evaluated(self, index: int, failure: CannotEvaluate) -> Hidden:
        return Hidden(f"{self.labels[index]}: when cannot be evaluated: {failure}")

    def _match_names(self, names: ToolNames, gate: str | None) -> _Chains:
        """Returns the rules for callers through *gate*; None: those of all gates."""
        gates = ("", *self.gates) if gate is None else dict.fromkeys(("", gate))
        return tuple(
            _Row(each, tuple(dict.fromkeys(self._chain(each, namespace, name) for name in own)))
            for each in gates
            for namespace, own in names
        )

    def _match(self, gate: str, namespace: str, name: str) -> _Chain:
        """Returns the rules of *gate* that match a tool, up to the first without a condition: those behind it are not
        reached. A tool that is not one of a virtual gate's has none there."""
        chain: list[int] = []
        if gate and not any(_fits(globs, namespace, name) for globs in self._tools_of.get(gate, ())):
            return self._chain_of(())
        for index in self._in_namespace(namespace):
            if self._gate_of[index] != gate:
                continue
            glob = self._patterns[index][1]
            if glob is None or glob(name):
                chain.append(index)
                if self.rules[index].when is None:
                    break
        return self._chain_of(tuple(chain))

    def _make_chain(self, rules: tuple[int, ...]) -> _Chain:
        parts = tuple((together, tuple(some)) for together, some in groupby(rules, self._joined.get))
        return _Chain(rules, parts)

    def _match_namespace(self, namespace: str) -> tuple[int, ...]:
        return tuple(index for index, (glob, _) in enumerate(self._patterns) if glob is None or glob(namespace))


_Globs = tuple[Callable[[str], bool] | None, Callable[[str], bool] | None]


def _globs(match: str) -> _Globs:
    namespace, name = split_pattern(match)
    return compile_glob(namespace), compile_glob(name)


def _fits(globs: _Globs, namespace: str, name: str) -> bool:
    """*name* ``*`` stands for all tools, so that a pattern like ``[!_]*`` does not fit it."""
    of_namespace, of_name = globs
    return (of_namespace is None or of_namespace(namespace)) and (of_name is None or (name != "*" and of_name(name)))


def _joined(rules: Sequence[AccessRule]) -> dict[int, Joined]:
    """Joins the conditions on arguments of the rules with one pattern: whatever tool is called, all or none of them
    match it."""
    by_pattern: defaultdict[str, dict[int, Condition]] = defaultdict(dict)
    for index, rule in enumerate(rules):
        if condition := _on_args(rule):
            by_pattern[rule.match][index] = condition
    return {index: each for conditions in by_pattern.values() for index, each in join(conditions).items()}


def _on_args(rule: AccessRule) -> Condition | None:
    return rule.when if rule.when is not None and rule.when.needs_args else None


def _itself(rights: Rights) -> Rights:
    return rights


def _strictest(outcomes: Iterable[Outcome]) -> Outcome | None:
    """Returns the first of the strictest; None if there are none. Approvals of others are asked for together."""
    found = list(outcomes)
    strictest = max(found, key=lambda outcome: _STRICTNESS[type(outcome)], default=None)
    if isinstance(strictest, NeedsApproval):
        asking = (each.needs for each in found if isinstance(each, NeedsApproval))
        return NeedsApproval(tuple(dict.fromkeys(need for needs in asking for need in needs)))
    return strictest


def _effects(rights: Rights, rules: Sequence[int]) -> Iterator[tuple[int, _Effect]]:
    """Yields the effects of *rules*, up to the first that holds without a condition on arguments."""
    for index in rules:
        effect = rights.effects[index]
        if effect is not None:
            yield index, effect
            if effect.condition is None:
                break


def _best_outcome(rights: Rights, chain: _Chain) -> Outcome | None:
    """Returns the most favourable outcome that a call could have; None if that is the outcome when no rule holds. It
    decides whether the tool exists at all."""
    asks: Outcome | None = None
    first: Outcome | None = None
    may_hold_none = True
    for index in chain.rules:
        effect = rights.effects[index]
        if effect is None:
            continue
        if isinstance(effect.outcome, Allowed):
            return effect.outcome
        if asks is None and isinstance(effect.outcome, NeedsApproval):
            asks = effect.outcome
        first = first or effect.outcome
        if effect.condition is None:
            may_hold_none = False
            break
    if may_hold_none:
        return None if rights.default == "allow" else asks
    return asks or first

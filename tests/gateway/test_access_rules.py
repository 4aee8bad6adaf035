"""Every way to a tool gives one answer about it, whatever the rules (ACCESS-8, ACCESS-13)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.access.conditions import Condition
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import ApprovalRequired, Forbidden, HydrateFailed, ViewFailed
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.calls import DryRun
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.gateway.snapshot import Snapshot
from wicketgate.ports import Artifact, CallContext
from wicketgate.storage.artifacts import StoredArtifacts
from wicketgate.storage.memory import MemoryStore
from wicketgate.upstreams.embedded import StubUpstream

NAMES = ("get_one", "get_two", "delete_one", "delete_two")
SERVERS = ("db", "shop")


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": "done"}]}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "A thing to do.", "inputSchema": {"type": "object"}}


class House:
    """One runtime over two stub upstreams; the rules in force are assigned for each example."""

    def __init__(self) -> None:
        self.store = StoredArtifacts(MemoryStore(lambda: 0.0))
        self.upstreams = [StubUpstream([tool(name) for name in NAMES], answer, name=server) for server in SERVERS]
        self.runtime = ProxyRuntime(MultiplexUpstream(self.upstreams), RuntimeOptions(artifacts=self.store))

    async def shown_by(self, way: str, context: CallContext) -> set[str]:
        ids = list(self.runtime.catalog().items)
        match way:
            case "query":
                return {card.id for card in (await self.runtime.browse_query("a thing to do", 50, context)).cards}
            case "path":
                return await self._walk("/", context)
            case _:
                return {each for each in ids if await self._reached(way, each, context)}

    async def _walk(self, path: str, context: CallContext) -> set[str]:
        found = set[str]()
        for card in (await self.runtime.browse_path(path, context)).cards:
            found |= await self._walk(card.id, context) if card.kind == "internal" else {card.id}
        return found

    async def _reached(self, way: str, tool_id: str, context: CallContext) -> bool:
        try:
            match way:
                case "hydrate":
                    await self.runtime.hydrate(tool_id, context)
                case "view":
                    handle = f"text:{tool_id}:0123456789abcdef"
                    await self.store.put(context.identity.actor, Artifact(handle, "text/plain", "x", b"kept"))
                    await self.runtime.view(handle, {"type": "head", "chars": 1}, context)
                case "dry_run":
                    await self.runtime.execute(tool_id, {}, context, dry_run=True)
                case _:
                    await self.runtime.execute(tool_id, {}, context)
        except (HydrateFailed, ViewFailed):
            return False
        except (ApprovalRequired, Forbidden):
            pass
        return True


_HOUSES: list[House] = []


async def house() -> House:
    """Made once: refreshing for each example would take most of the time."""
    if not _HOUSES:
        made = House()
        await made.runtime.refresh_catalog()
        _HOUSES.append(made)
    _HOUSES[0].runtime.access = AccessPolicy()
    return _HOUSES[0]


CONDITIONS = [
    None,
    *map(Condition, ("actor == 'ann'", "'x' in roles", "has(args.amount)", "args.amount > 1")),
]

rules = st.lists(
    st.builds(
        AccessRule,
        match=st.sampled_from(["*", "db:*", "shop:*", "*:delete_*", "db:get_one", "s?op:*_two"]),
        require=st.sampled_from([(), ("role:x",), ("role:x", "role:y"), ("db:read",), ("role:x", "db:read")]),
        require_any=st.sampled_from([(), ("role:x", "role:y")]),
        visibility=st.sampled_from(["external", "external", "internal"]),
        when=st.sampled_from(CONDITIONS),
        approval=st.sampled_from(["never", "always"]),
        effect=st.sampled_from(["allow", "allow", "deny"]),
    ),
    max_size=5,
)
identities = st.builds(
    Identity,
    st.sampled_from(["ann", "bob"]),
    st.lists(
        st.sampled_from(["tools:*", "tools:db:*", "tools:*:get_one", "db:read", "*"]),
        max_size=4,
        unique=True,
    ).map(tuple),
    roles=st.sampled_from([(), ("x",), ("x", "y")]),
)


@requirement("EXEC-29", "FACE-26", "FACE-34", "ACCESS-8", "ACCESS-10", "ACCESS-13")
@given(rules, identities)
async def test_browsing_hydrating_calling_and_viewing_agree_on_what_there_is(
    access: list[AccessRule], identity: Identity
) -> None:
    here = await house()
    here.runtime.access = AccessPolicy(access)
    context = CallContext(identity, "trace-1", "s")
    expected = await here.shown_by("hydrate", context)
    for way in ("query", "path", "view", "dry_run", "execute"):
        assert await here.shown_by(way, context) == expected, way


OWNER = CallContext(Identity("owner_1", ("tools:*",)), "trace-1", "s")


async def tool_id(here: House, namespace: str, name: str) -> str:
    (found,) = (i.id for i in here.runtime.catalog().items.values() if (i.namespace, i.name) == (namespace, name))
    return found


@requirement("FACE-26", "ACCESS-8")
async def test_a_hidden_tool_and_none_are_one_answer_byte_for_byte() -> None:
    here = await house()
    known = await tool_id(here, "db", "get_one")
    here.runtime.access = AccessPolicy([AccessRule("db:*", require=("role:admin",))])
    absent = "db:get_one#00000000"
    answers = []
    for asked in (known, absent):
        with pytest.raises(HydrateFailed) as refused:
            await here.runtime.execute(asked, {}, OWNER)
        answers.append(json.dumps(refused.value.as_dict()).replace(asked, ""))
    assert answers[0] == answers[1]


@requirement("ACCESS-12")
async def test_a_call_that_its_arguments_forbid_is_refused_in_our_words_and_never_sent() -> None:
    here = await house()
    known = await tool_id(here, "shop", "get_one")
    rule = AccessRule("shop:*", when=Condition("has(args.amount) && args.amount > 100"), require=("role:boss",))
    here.runtime.access = AccessPolicy([rule])
    sent = len(here.upstreams[1].calls)
    with pytest.raises(Forbidden) as refused:
        await here.runtime.execute(known, {"amount": 500}, OWNER)
    assert refused.value.as_dict() == {
        "error": "FORBIDDEN",
        "message": "You may use this tool, but not with these arguments.",
        "path": known,
        "retryable": False,
    }
    with pytest.raises(Forbidden):
        await here.runtime.execute(known, {"amount": 500}, OWNER, dry_run=True)
    with pytest.raises(Forbidden):
        await here.runtime.execute(known, {"amount": 500, "much": ["x"] * 1_000}, OWNER)
    assert len(here.upstreams[1].calls) == sent
    await here.runtime.execute(known, {"amount": 5}, OWNER)
    assert len(here.upstreams[1].calls) == sent + 1


@requirement("EXEC-5", "CHAT-65", "ACCESS-10")
async def test_a_call_that_needs_approval_is_not_sent_and_a_dry_run_says_so() -> None:
    here = await house()
    known = await tool_id(here, "shop", "delete_one")
    here.runtime.access = AccessPolicy([AccessRule("*:delete_*", approval="always")])
    sent = len(here.upstreams[1].calls)
    with pytest.raises(ApprovalRequired) as asked:
        await here.runtime.execute(known, {}, OWNER)
    assert (asked.value.code, asked.value.path) == ("APPROVAL_REQUIRED", known)
    dry = await here.runtime.execute(known, {}, OWNER, dry_run=True)
    assert isinstance(dry, DryRun)
    assert dry.approval is not None
    assert len(here.upstreams[1].calls) == sent


async def test_rules_are_replaced_by_one_assignment() -> None:
    here = await house()
    assert len((await here.runtime.browse_query("a thing to do", 50, OWNER)).cards) == 8
    here.runtime.access = AccessPolicy([AccessRule("db:*", visibility="internal")])
    assert len((await here.runtime.browse_query("a thing to do", 50, OWNER)).cards) == 4
    here.runtime.access = AccessPolicy()
    assert len((await here.runtime.browse_query("a thing to do", 50, OWNER)).cards) == 8


async def test_callers_of_equal_rights_share_what_was_worked_out_for_them() -> None:
    here = await house()
    policy = AccessPolicy([AccessRule("db:*", when=Condition("actor == 'eve'"), effect="deny")])
    snapshot = Snapshot(here.runtime.catalog(), {}, {})
    seen = [snapshot.audience(policy, Identity(actor, ("tools:*",))) for actor in ("ann", "bob", "eve")]
    assert seen[0] is seen[1]
    assert seen[0] is not seen[2]

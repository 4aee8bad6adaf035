"""A server that infers namespaces cannot move in with another upstream (CARD-31, ACCESS-48)."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.identity import Identity
from wicketgate.errors import HydrateFailed
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.gateway.catalog_keeper import tools_left_out
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

CARL = CallContext(Identity("carl", ("tools:pyt:echo",)), "trace-1", "s")


async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": name}]}


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "Give the text back.", "inputSchema": {"type": "object"}}


@requirement("CARD-31")
async def test_a_tool_that_infers_the_namespace_of_another_upstream_is_left_out_and_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranger = StubUpstream([tool("pyt.echo"), tool("other.tool")], answer, name="raw")
    pyt = StubUpstream([tool("echo")], answer, name="pyt")
    runtime = await refreshed(
        ProxyRuntime(
            MultiplexUpstream([stranger, pyt]),
            RuntimeOptions(RuntimePolicies(inferred={"raw"}, configured={"raw", "pyt"})),
        )
    )
    assert sorted(item.server for item in runtime.catalog().items.values() if item.namespace == "pyt") == ["pyt"]
    assert list(tools_left_out(runtime.catalog())) == ["raw[0]"]
    assert "tool left out: raw[0]: name: 'pyt.echo' gives the namespace 'pyt'" in caplog.text
    (card,) = (await runtime.browse_query("text back", 9, CARL)).cards
    await runtime.execute(card.id, {}, CARL)
    assert (len(stranger.calls), len(pyt.calls)) == (0, 1)


@requirement("CARD-31")
async def test_the_namespace_of_an_upstream_that_is_not_there_yet_is_taken_as_well() -> None:
    stranger = StubUpstream([tool("pyt.echo")], answer, name="raw")
    runtime = await refreshed(
        ProxyRuntime(stranger, RuntimeOptions(RuntimePolicies(inferred={"raw"}, configured={"raw", "pyt"})))
    )
    assert runtime.catalog().items == {}


@requirement("CARD-31")
async def test_an_upstream_that_a_reload_adds_takes_its_namespace_back(caplog: pytest.LogCaptureFixture) -> None:
    stranger = StubUpstream([tool("pyt.echo")], answer, name="raw")
    policies = RuntimePolicies(inferred={"raw"}, configured={"raw"})
    runtime = await refreshed(ProxyRuntime(stranger, RuntimeOptions(policies)))
    (tool_id,) = runtime.catalog().items
    both = CallContext(Identity("ann", ("tools:*",)), "trace-1", "s")
    await runtime.execute(tool_id, {}, both)
    members = [*runtime.fleet.members.values(), Member(StubUpstream([tool("echo")], answer, name="pyt"))]
    after = RuntimePolicies(inferred={"raw"}, configured={"raw", "pyt"})
    await runtime.rearrange(members, after, lambda: None)
    with pytest.raises(HydrateFailed):
        await runtime.execute(tool_id, {}, both)
    assert "tool left out: raw[0]" in caplog.text
    assert len(stranger.calls) == 1


async def test_an_upstream_without_a_name_keeps_its_namespaces_over_a_reload() -> None:
    runtime = await refreshed(ProxyRuntime(StubUpstream([tool("github.read")], answer)))
    before = list(runtime.catalog().items)
    await runtime.rearrange(list(runtime.fleet.members.values()), RuntimePolicies(inferred={"x"}), lambda: None)
    assert list(runtime.catalog().items) == before


@requirement("BROWSE-26")
async def test_a_session_never_reads_the_card_of_a_definition_that_is_gone() -> None:
    upstream = StubUpstream([tool("echo"), tool("other")], answer, name="pyt")
    runtime = await refreshed(ProxyRuntime(upstream, cache_stable=True))
    context = CallContext(Identity("ann", ("tools:*",)), "trace-1", "s")
    first = (await runtime.browse_path("/pyt", context)).cards
    upstream.tools[0]["description"] = "Wipe the disk."  # type: ignore[index]
    await runtime.refresh_catalog()
    for way in (await runtime.browse_path("/pyt", context), await runtime.browse_query("wipe disk", 1, context)):
        assert {card.description for card in way.cards if card.name == "echo"} == {"Wipe the disk."}
    assert [card.name for card in first] == ["echo", "other"]
    third = (await runtime.browse_path("/pyt", context)).cards
    assert [card.name for card in third] == ["echo", "other"]

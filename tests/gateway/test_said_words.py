"""The operator's words of a tool (``browse.words``): found by them, at no cost of a query (BROWSE-52 to BROWSE-55)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.effort import bounded_effort
from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.catalog.said_words import SaidWords
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugins.rewriting import ToolManager, ToolManagerConfig
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

Said = Mapping[str, Sequence[str]]


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


GITHUB = [
    tool("list_commits", "Commits of a branch."),
    tool("get_branch", "A branch of git and its history of protection."),
    tool("list_issues", "Issues, with their history."),
    tool("git_tag", "Tags."),
]


async def started(words: Said, tools: Sequence[Mapping[str, Any]] = GITHUB, **more: Any) -> ProxyRuntime:
    policies = RuntimePolicies(words=words, **more)
    return await refreshed(ProxyRuntime(StubUpstream(list(tools), name="github"), RuntimeOptions(policies)))


async def say(runtime: ProxyRuntime, words: Said) -> None:
    """Does what a reload does."""
    await runtime.rearrange(list(runtime.fleet.members.values()), RuntimePolicies(words=words), lambda: None)


async def found(runtime: ProxyRuntime, query: str, context: CallContext | None = None) -> list[str]:
    browse = await runtime.browse_query(query, 10, context) if context else await runtime.browse_query(query)
    return [card.id.partition("#")[0] for card in browse.cards]


@requirement("BROWSE-52")
async def test_a_tool_is_found_first_by_words_that_its_definition_does_not_have() -> None:
    assert (await found(await started({}), "git history"))[0] != "github:list_commits"
    runtime = await started({"github:list_commits": ["history", "git log"]})
    assert (await found(runtime, "git history"))[0] == "github:list_commits"
    assert (await found(runtime, "log"))[0] == "github:list_commits"


@requirement("BROWSE-52")
async def test_said_words_count_more_than_a_description_and_less_than_a_name() -> None:
    tools = [tool("a", "The wombat and eight further words that are about nothing."), tool("b"), tool("wombat")]
    runtime = await started({"github:b": ["wombat"]}, tools)
    assert await found(runtime, "wombat") == ["github:wombat", "github:b", "github:a"]


@requirement("BROWSE-52")
async def test_a_word_that_is_said_twice_counts_once() -> None:
    once = await started({"github:git_tag": ["label", "release mark"]})
    twice = await started({"github:git_tag": ["label", "release mark", "label", "mark"]})
    assert (await once.browse_query("label")).cards == (await twice.browse_query("label")).cards


@requirement("BROWSE-53")
@pytest.mark.parametrize(
    ("match", "expected"),
    [
        ("github:list_commits", ["github:list_commits"]),
        ("github:list_*", ["github:list_commits", "github:list_issues"]),
        ("*:git_tag", ["github:git_tag"]),
        ("g?thub:get_[ab]ranch", ["github:get_branch"]),
        ("*", ["github:get_branch", "github:git_tag", "github:list_commits", "github:list_issues"]),
        ("GitHub:list_commits", []),
        ("github:list", []),
    ],
)
async def test_a_pattern_fits_as_in_a_rule(match: str, expected: list[str]) -> None:
    assert sorted(await found(await started({match: ["wombat"]}), "wombat")) == expected


@requirement("BROWSE-53")
async def test_a_pattern_may_have_the_hash_of_the_id() -> None:
    (plain,) = (each for each in (await started({})).catalog().items if each.startswith("github:git_tag#"))
    assert await found(await started({plain: ["wombat"]}), "wombat") == ["github:git_tag"]
    assert await found(await started({f"{plain[:-1]}*": ["wombat"]}), "wombat") == ["github:git_tag"]
    assert await found(await started({"github:git_tag#00000000": ["wombat"]}), "wombat") == []


@requirement("BROWSE-53")
async def test_a_tool_that_has_several_names_is_meant_by_each_and_all_that_fits_it_counts() -> None:
    config = ToolManagerConfig.model_validate(
        {"mode": "allowlist", "tools": [{"tool": "list_commits", "display_name": "show past"}]}
    )
    chain = PluginChain({"raw": [Installed("tool_manager", ToolManager(config))]}, lambda: 0.0)
    words = {"raw:list_commits": ["wombat"], "raw:show past": ["quokka"], "*:show_past": ["numbat"]}
    runtime = await refreshed(
        ProxyRuntime(StubUpstream(GITHUB, name="raw"), RuntimeOptions(RuntimePolicies(words=words), plugins=chain))
    )
    for each in ("wombat", "quokka", "numbat"):
        assert await found(runtime, each) == ["raw:show_past"], each


@requirement("BROWSE-54")
async def test_words_bring_up_no_tool_that_is_hidden() -> None:
    access = AccessPolicy([AccessRule("github:list_commits", effect="deny")])
    runtime = await started({"github:list_*": ["wombat"]}, access=access)
    assert await found(runtime, "wombat") == ["github:list_issues"]
    narrow = CallContext(Identity("ann", ("tools:github:get_branch",)), "trace", "session")
    assert await found(runtime, "wombat", narrow) == []


@requirement("BROWSE-54")
async def test_definitions_digests_cards_and_the_version_of_the_catalog_stay_as_they_were() -> None:
    plain, with_words = await started({}), await started({"*": ["wombat"]})
    assert plain.catalog().items == with_words.catalog().items
    assert plain.catalog().version == with_words.catalog().version
    assert plain.catalog().cards_at(()) == with_words.catalog().cards_at(())
    for tool_id in plain.catalog().items:
        assert (await plain.hydrate(tool_id)) == await with_words.hydrate(tool_id)


@requirement("BROWSE-55")
async def test_other_words_take_effect_at_once_and_rank_like_a_gate_started_with_them() -> None:
    runtime = await started({"github:list_*": ["wombat"], "github:get_branch": ["quokka"]})
    later = {"github:list_issues": ["wombat"], "github:git_tag": ["numbat"], "github:get_branch": ["quokka"]}
    await say(runtime, later)
    fresh = await started(later)
    for query in ("wombat", "quokka", "numbat", "wombat numbat quokka", "git history"):
        assert (await runtime.browse_query(query)).cards == (await fresh.browse_query(query)).cards, query
    await say(runtime, {})
    assert await found(runtime, "wombat quokka numbat") == []


@requirement("BROWSE-55")
async def test_a_tool_that_comes_changes_or_goes_has_the_words_that_are_in_force() -> None:
    server = StubUpstream([tool("git_tag")], name="github")
    runtime = await refreshed(ProxyRuntime(server, RuntimeOptions(RuntimePolicies(words={"github:*": ["wombat"]}))))
    server.tools[:] = [tool("git_tag", "Changed."), tool("list_issues")]
    await runtime.refresh_catalog()
    assert sorted(await found(runtime, "wombat")) == ["github:git_tag", "github:list_issues"]
    await say(runtime, {"github:git_*": ["quokka"]})
    server.tools[:] = [tool("git_push"), tool("list_issues")]
    await runtime.refresh_catalog()
    assert (await found(runtime, "wombat"), await found(runtime, "quokka")) == ([], ["github:git_push"])


@requirement("BROWSE-55")
async def test_other_words_are_no_other_tools() -> None:
    runtime = await started({})
    swaps: list[None] = []
    runtime.changes.watch(lambda: swaps.append(None))
    await say(runtime, {"github:git_tag": ["wombat"]})
    assert await found(runtime, "wombat") == ["github:git_tag"]
    assert swaps == []


@requirement("BROWSE-55")
async def test_only_the_tools_concerned_are_indexed_again_and_a_query_costs_what_it_cost() -> None:
    description = "Some twenty words of a description, which take a while to read and are read for each tool."
    many = [tool(f"tool_{number}", description) for number in range(2_000)]
    catalog = (await started({}, many)).catalog()
    with bounded_effort(calls=40_000):
        said = catalog.saying(SaidWords({"github:tool_7": ["wombat"]}))
    with bounded_effort(calls=1_000):
        ((best, _),) = said.router.route("wombat", 5)
    assert best.startswith("github:tool_7#")
    assert said.saying(SaidWords({"github:tool_7": ["wombat"]})) is said


@requirement("BROWSE-53")
async def test_words_of_several_upstreams_go_by_their_namespaces() -> None:
    members = MultiplexUpstream([StubUpstream([tool("go")], name=name) for name in ("a", "b")])
    runtime = await refreshed(ProxyRuntime(members, RuntimeOptions(RuntimePolicies(words={"a:go": ["wombat"]}))))
    assert await found(runtime, "wombat") == ["a:go"]


@requirement("BROWSE-53")
def test_a_malformed_pattern_is_an_error_at_the_start() -> None:
    with pytest.raises(ValueError, match="must be <namespace>:<tool>"):
        ProxyRuntime(StubUpstream([]), RuntimeOptions(RuntimePolicies(words={"github": ["x"]})))

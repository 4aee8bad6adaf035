"""Patterns of the operator that match no tool (ACCESS-53, ACCESS-54)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.requirement import requirement
from tests.support.runtimes import refreshed
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.catalog.pins import PinPolicy, pin_all
from wicketgate.errors import UpstreamUnavailable
from wicketgate.fleet.member import Member, MultiplexUpstream
from wicketgate.gateway.call_policy import CallPolicy
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.plugin_chain import Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.plugins.rewriting import ToolManager, ToolManagerConfig
from wicketgate.upstreams.embedded import StubUpstream

LONG = "delete_" + "qx7zk9_" * 16 + "w"


def tool(name: str) -> dict[str, Any]:
    return {"name": name, "description": "A thing to do.", "inputSchema": {"type": "object"}}


class Down(StubUpstream):
    """Lists nothing until it is *up*."""

    up = False

    async def list_tools(self) -> Sequence[Mapping[str, Any]]:
        if not self.up:
            raise UpstreamUnavailable("down")
        return await super().list_tools()


def rules(*patterns: str) -> AccessPolicy:
    return AccessPolicy([AccessRule(pattern, approval="always") for pattern in patterns])


@requirement("ACCESS-53")
async def test_every_kind_of_pattern_that_matches_no_tool_is_named(caplog: pytest.LogCaptureFixture) -> None:
    files = StubUpstream([tool("read"), tool("write"), tool(LONG)], name="files")
    config = ToolManagerConfig.model_validate({"mode": "denylist", "tools": ["write", "wriet", "no_*"]})
    chain = PluginChain({"files": [Installed("tool_manager", ToolManager(config))]}, lambda: 0.0)
    policies = RuntimePolicies(
        calls={
            "files": CallPolicy(
                tool_timeouts_s={"read": 1, "raed": 2}, cached_tools=["re*", "raed"], read_only=["re?d", "rd"]
            )
        },
        access=rules("files:*", "*:read", "files:wri*", f"files:{LONG}", "files:raed", "fiels:read", "*:delete"),
        per_tool={"files:read": 1, "files:raed": 1, "*": 9, "files:read#*": 9},
        pins=PinPolicy(pin_all({"fiels": [tool("read")], "files/prompts": [tool("greet")]})),
        configured={"files"},
    )
    runtime = ProxyRuntime(files, RuntimeOptions(policies, plugins=chain))
    assert runtime.changes.unmatched() == ()
    await runtime.refresh_catalog()
    assert list(runtime.changes.unmatched()) == [
        "access[4] (files:raed)",
        "access[5] (fiels:read)",
        "access[6] (*:delete)",
        "quota.per_tool (files:raed)",
        "pins (fiels): there is no upstream of this name",
        "upstreams.files.cache.tools (raed)",
        "upstreams.files.tool_timeouts_s (raed)",
        "upstreams.files.read_only (rd)",
        "plugins.middleware.files.tool_manager (wriet)",
        "plugins.middleware.files.tool_manager (no_*)",
    ]
    assert caplog.text.count("no tool matches: access[4] (files:raed)") == 1


@requirement("ACCESS-54")
async def test_nothing_is_said_of_an_upstream_that_has_not_listed_its_tools(caplog: pytest.LogCaptureFixture) -> None:
    down = Down([tool("pay")], name="shop")
    policies = RuntimePolicies(
        calls={"shop": CallPolicy(cached_tools=["pya"])},
        access=rules("shop:pya", "*:pya", "files:raed"),
        per_tool={"shop:pya": 1, "*pya": 1, "files:raed": 1},
        configured={"shop", "files", "disabled"},
    )
    members = MultiplexUpstream([StubUpstream([tool("read")], name="files"), down])
    runtime = await refreshed(ProxyRuntime(members, RuntimeOptions(policies)))
    assert list(runtime.changes.unmatched()) == ["access[2] (files:raed)", "quota.per_tool (files:raed)"]
    down.up = True
    await runtime.refresh_catalog(["shop"])
    # An upstream that is disabled lists nothing, so a pattern that could be about it is never reported.
    assert list(runtime.changes.unmatched()) == [
        "access[0] (shop:pya)",
        "access[2] (files:raed)",
        "quota.per_tool (shop:pya)",
        "quota.per_tool (files:raed)",
        "upstreams.shop.cache.tools (pya)",
    ]
    assert caplog.text.count("no tool matches: access[2] (files:raed)") == 1


@requirement("ACCESS-54")
async def test_while_one_that_infers_namespaces_is_down_no_rule_can_be_judged() -> None:
    upstreams = MultiplexUpstream([StubUpstream([tool("read")], name="files"), Down([], name="raw")])
    policies = RuntimePolicies(access=rules("github:read"), inferred={"raw"})
    runtime = await refreshed(ProxyRuntime(upstreams, RuntimeOptions(policies)))
    assert runtime.changes.unmatched() == ()


@requirement("ACCESS-53")
async def test_a_reload_and_a_refresh_are_looked_at_once_each(caplog: pytest.LogCaptureFixture) -> None:
    files = StubUpstream([tool("read")], name="files")
    runtime = await refreshed(ProxyRuntime(files, RuntimeOptions(RuntimePolicies(access=rules("files:read")))))
    assert runtime.changes.unmatched() == ()
    members: list[Member] = list(runtime.fleet.members.values())
    await runtime.rearrange(members, RuntimePolicies(access=rules("files:read", "files:write")), lambda: None)
    assert list(runtime.changes.unmatched()) == ["access[1] (files:write)"]
    files.tools[:] = [tool("write")]
    await runtime.refresh_catalog()
    assert list(runtime.changes.unmatched()) == ["access[0] (files:read)"]
    await runtime.refresh_catalog()
    assert caplog.text.count("no tool matches: ") == 2


@requirement("OPS-57")
async def test_an_entry_of_words_that_fits_no_tool_is_named_with_its_place(caplog: pytest.LogCaptureFixture) -> None:
    files = StubUpstream([tool("read")], name="files")
    runtime = await refreshed(ProxyRuntime(files))
    ((plain, _),) = runtime.catalog().items.items()
    words = {
        match: ["text"] for match in ("files:raed", plain, "files:*", "files:read#00000000", "fiels:*", f"{plain}0")
    }
    members: list[Member] = list(runtime.fleet.members.values())
    await runtime.rearrange(members, RuntimePolicies(words=words, configured={"files"}), lambda: None)
    assert list(runtime.changes.unmatched()) == [
        "browse.words[0].match (files:raed)",
        "browse.words[3].match (files:read#00000000)",
        "browse.words[4].match (fiels:*)",
        f"browse.words[5].match ({plain}0)",
    ]
    assert caplog.text.count("no tool matches: browse.words[0].match (files:raed)") == 1


@requirement("OPS-57")
async def test_nothing_is_said_of_words_of_a_tool_that_can_still_come() -> None:
    members = MultiplexUpstream([StubUpstream([tool("read")], name="files"), Down([tool("pay")], name="shop")])
    words = {"shop:pya#12345678": ["text"], "*:pya": ["text"], "files:raed": ["text"]}
    runtime = await refreshed(ProxyRuntime(members, RuntimeOptions(RuntimePolicies(words=words))))
    assert list(runtime.changes.unmatched()) == ["browse.words[2].match (files:raed)"]

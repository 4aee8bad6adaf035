"""The namespaced face over a runtime with stub upstreams (ROUTE-1 to ROUTE-17)."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.errors import UpstreamLost, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from wicketgate.faces.apps import SHOWS_APPS
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.operations import Operations
from wicketgate.faces.registry import RegistryFace
from wicketgate.faces.surface import Refusal
from wicketgate.faces.transparent import TransparentFace
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext, UpstreamStatus
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner", ("tools:*",)), "trace", "session")
HOST = CallContext(Identity("owner", ("tools:*",)), "trace", "session", SHOWS_APPS)
READER = CallContext(Identity("reader", ("tools:alpha:echo",)), "trace", "session")

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "additionalProperties": False}


def tool(name: str, schema: Mapping[str, Any] = TEXT, **more: Any) -> dict[str, Any]:
    return {"name": name, "description": f"{name}.", "inputSchema": schema, **more}


async def echo(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
    return {"content": [{"type": "text", "text": str(arguments.get("text"))}], "_meta": {"theirs": name}}


async def face_of(*upstreams: StubUpstream) -> NamespacedFace:
    fleet = MultiplexUpstream(upstreams)
    runtime = ProxyRuntime(fleet)
    await runtime.refresh_catalog()
    return NamespacedFace(runtime, fleet.statuses)


async def refusal(face: NamespacedFace, name: str, arguments: object = None, context: CallContext = OWNER) -> Refusal:
    with pytest.raises(Refusal) as refused:
        await face.call(name, arguments, context)
    return refused.value


@requirement("ROUTE-7")
async def test_the_tools_of_all_servers_are_listed_under_their_servers_names_sorted() -> None:
    face = await face_of(
        StubUpstream([tool("echo"), tool("Add"), tool("_private")], echo, name="beta"),
        StubUpstream([tool("zoo"), tool("echo")], echo, name="alpha"),
    )
    names = [shown.name for shown in face.tools(OWNER)]
    assert names == ["alpha__echo", "alpha__zoo", "beta___private", "beta__Add", "beta__echo"]
    assert face.tools(OWNER) is face.tools(OWNER)


@requirement("FACE-8", "ROUTE-7")
async def test_a_tool_is_listed_with_its_full_definition() -> None:
    output = {"type": "object", "properties": {"result": {"type": "string"}}}
    hints = {"readOnlyHint": True, "openWorldHint": False}
    face = await face_of(
        StubUpstream([tool("echo", title="Echo!", outputSchema=output, annotations=hints)], echo, name="alpha")
    )
    (shown,) = face.tools(OWNER)
    assert (shown.description, shown.input_schema, shown.output_schema) == ("echo.", TEXT, output)
    assert (shown.title, shown.read_only, shown.hints) == ("Echo!", True, hints)


@requirement("ROUTE-1")
async def test_a_call_reaches_its_server_under_the_tools_own_name_and_its_result_comes_back_as_it_is() -> None:
    alpha = StubUpstream([tool("echo"), tool("beta__echo"), tool("_private")], echo, name="alpha")
    face = await face_of(alpha)
    for name in ("echo", "beta__echo", "_private"):
        result = await face.call(f"alpha__{name}", {"text": "hi"}, OWNER)
        assert result.as_it_came == {"content": [{"type": "text", "text": "hi"}], "_meta": {"theirs": name}}
    assert [name for name, _, _ in alpha.calls] == ["echo", "beta__echo", "_private"]


@requirement("ROUTE-2", "ROUTE-3", "ROUTE-12", "ROUTE-13")
async def test_an_unknown_name_is_a_protocol_error_and_reaches_no_server() -> None:
    alpha = StubUpstream([tool("echo")], echo, name="alpha")
    face = await face_of(alpha)
    expected = {
        "echo": "Tool 'echo' is not properly namespaced. All tool calls must use 'server__tool' format "
        "(e.g., 'filesystem__echo')",
        "nope__echo": "Unknown server 'nope' in request",
        "alpha__nope": "Tool 'alpha__nope' not found",
    }
    for name, message in expected.items():
        error = await refusal(face, name)
        assert (error.code, error.message) == (-32602, message)
    (tool_id,) = face._runtime.catalog().items  # a tool's id is no name of this face
    assert (await refusal(face, tool_id)).code == -32602
    assert alpha.calls == []


@requirement("ROUTE-17")
async def test_a_hidden_tool_is_answered_like_an_unknown_one() -> None:
    face = await face_of(
        StubUpstream([tool("echo"), tool("secret")], echo, name="alpha"), StubUpstream([tool("x")], echo, name="beta")
    )
    assert [shown.name for shown in face.tools(READER)] == ["alpha__echo"]
    one, other = [await refusal(face, f"alpha__{name}", {}, READER) for name in ("secret", "absent")]
    assert (one.code, one.message.replace("secret", "absent"), one.data) == (other.code, other.message, other.data)
    one, other = await refusal(face, "beta__x", {}, READER), await refusal(face, "gamma__x", {}, READER)
    assert (one.code, one.message.replace("beta", "gamma"), one.data) == (other.code, other.message, other.data)
    assert not (await face.call("alpha__echo", {}, READER)).is_error


@requirement("ROUTE-13", "ROUTE-14")
async def test_an_error_of_the_server_keeps_its_code_and_data_and_names_the_tool_as_the_client_does() -> None:
    async def refuse(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        raise UpstreamRefused("raw refused.", code=-32000, refusal="Tool echo not found, my_echo", data={"d": 1})

    error = await refusal(await face_of(StubUpstream([tool("echo")], refuse, name="raw")), "raw__echo", {})
    assert (error.code, error.message, error.data) == (-32000, "Tool raw__echo not found, my_echo", {"d": 1})


@pytest.mark.parametrize(
    "failure", [UpstreamUnavailable("it is away"), UpstreamTimeout("too slow"), UpstreamLost("it died")]
)
@requirement("ROUTE-15")
async def test_a_server_that_fails_is_a_protocol_error_that_says_how(failure: Exception) -> None:
    async def fail(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        raise failure

    face = await face_of(StubUpstream([tool("echo")], fail, name="raw"))
    error = await refusal(face, "raw__echo", {})
    assert error.code == -32004
    assert error.message.startswith(str(failure))


@requirement("ROUTE-16")
async def test_arguments_that_do_not_fit_are_a_result_that_teaches() -> None:
    alpha = StubUpstream([tool("echo")], echo, name="alpha")
    face = await face_of(alpha)
    bad: list[object] = [{"text": 5}, [], "text", {"nope": 1}]
    for arguments in bad:
        result = await face.call("alpha__echo", arguments, OWNER)
        assert (result.is_error, result.structured["error"]) == (True, "ARGS_INVALID")
        assert result.structured["path"] == "alpha__echo"
    assert alpha.calls == []
    assert not (await face.call("alpha__echo", None, OWNER)).is_error


@requirement("ROUTE-9", "ROUTE-17")
async def test_a_server_that_is_down_is_reported_only_to_callers_that_may_know_it() -> None:
    beta = StubUpstream([], echo, name="beta")
    beta.status = UpstreamStatus("down", "the command was not found")
    face = await face_of(StubUpstream([tool("echo")], echo, name="alpha"), beta)
    error = await refusal(face, "beta__x", {})
    assert (error.code, error.message) == (-32004, "Server 'beta' is unavailable: the command was not found")
    assert (await refusal(face, "beta__x", {}, READER)).message == "Unknown server 'beta' in request"
    assert face.missing(OWNER) == {"beta": "the command was not found"}
    assert face.missing(READER) == {}


@requirement("ROUTE-6")
async def test_a_name_that_no_model_can_say_gets_an_alias_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    long = "x" * 80
    alpha = StubUpstream([tool("echo"), tool(long), tool("a/b.c")], echo, name="alpha")
    face = await face_of(alpha)
    with caplog.at_level(logging.WARNING):
        names = [shown.name for shown in face.tools(OWNER)]
    assert len(names) == 3
    assert all(len(name) <= 64 and name.startswith("alpha__") for name in names)
    assert "2 tools have an alias" in caplog.text
    for name in [*names, f"alpha__{long}", "alpha__a/b.c"]:
        assert not (await face.call(name, {}, OWNER)).is_error
    assert {name for name, _, _ in alpha.calls} == {"echo", long, "a/b.c"}


@requirement("ROUTE-6")
async def test_two_tools_of_one_name_leave_one_and_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    face = await face_of(StubUpstream([tool("echo"), tool("echo", {"type": "object"})], echo, name="alpha"))
    with caplog.at_level(logging.WARNING):
        assert [shown.name for shown in face.tools(OWNER)] == ["alpha__echo"]
    assert "has the name of another tool" in caplog.text


@requirement("FACE-35")
async def test_no_tool_is_unknown_before_the_servers_have_started() -> None:
    runtime = ProxyRuntime(StubUpstream([tool("echo")], echo))
    face = NamespacedFace(runtime, dict, started=lambda: False)
    assert (await refusal(face, "alpha__echo")).code == -32004


LINK = {"type": "resource_link", "uri": "file:///a b.txt", "name": "a", "_meta": {"theirs": 1}}
EMBEDDED = {"type": "resource", "resource": {"uri": "demo://x", "text": "see demo://x"}}
WEB = {"type": "resource_link", "uri": "https://example.com/a", "name": "web"}
WITH_ICONS = {**WEB, "icons": [{"src": "http://127.0.0.1/x.png"}]}
TEXT_BLOCK = {"type": "text", "text": "see demo://x"}


@requirement("FACE-165", "ROUTE-46", "ROUTE-47")
async def test_links_in_a_result_lead_back_to_its_server_and_the_rest_is_as_it_came() -> None:
    meta = {"ui": {"resourceUri": "ui://w/app.html", "csp": {}}, "ui/resourceUri": "ui://w", "theirs": "demo://x"}

    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        blocks = [
            LINK,
            EMBEDDED,
            WEB,
            WITH_ICONS,
            TEXT_BLOCK,
            {"type": "resource_link", "uri": 5},
            {"type": "resource"},
            "odd",
        ]
        return {"content": blocks, "structuredContent": {"uri": "demo://x"}, "_meta": meta}

    face = await face_of(StubUpstream([tool("find", {"type": "object"})], answer, name="my_git"))
    result = (await face.call("my_git__find", {}, OWNER)).as_it_came
    assert result is not None
    link, embedded, *others = result["content"]
    assert link == {**LINK, "uri": "my.git++file:///a%20b.txt"}
    assert embedded["resource"] == {"uri": "my.git+demo://x", "text": "see demo://x"}
    assert others == [
        WEB,
        WEB,
        TEXT_BLOCK,
        {"type": "resource_link", "uri": 5},
        {"type": "resource"},
        "odd",
    ]
    assert result["structuredContent"] == {"uri": "demo://x"}
    assert result["_meta"] == {
        "ui": {"resourceUri": "ui://my.git/w/app.html", "csp": {}},
        "ui/resourceUri": "ui://my.git/w",
        "theirs": "demo://x",
    }


@requirement("ROUTE-46")
async def test_a_result_without_a_link_is_the_object_that_came() -> None:
    given = {"content": [TEXT_BLOCK, WEB], "_meta": {"theirs": 1}}

    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return given

    face = await face_of(StubUpstream([tool("find", {"type": "object"})], answer, name="a"))
    assert (await face.call("a__find", {}, OWNER)).as_it_came == given


@requirement("ROUTE-48")
async def test_links_of_the_other_faces_are_those_of_the_server_since_they_can_only_be_given_back_to_it() -> None:
    async def answer(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [LINK]}

    fleet = MultiplexUpstream([StubUpstream([tool("find", {"type": "object"})], answer, name="a")])
    runtime = ProxyRuntime(fleet)
    await runtime.refresh_catalog()
    tool_id = next(iter(runtime.catalog().tools))
    unchanged = await TransparentFace(runtime).call("tool_execute", {"tool_id": tool_id}, OWNER)
    assert unchanged.as_it_came == {"content": [LINK]}
    gateway, registry = GatewayFace(runtime), RegistryFace(Operations(runtime))
    for result in (
        await gateway.call("tool_execute", {"tool_id": tool_id, "args": {}}, OWNER),
        await registry.call("call", {"operation": "/a/find"}, OWNER),
    ):
        assert "file:///a b.txt" in result.text and "a+" not in result.text


PAGE = {"ui": {"resourceUri": "ui://shop/cart.html"}}
APP_ONLY = {"ui": {"resourceUri": "ui://shop/cart.html", "visibility": ["app"]}}


async def shop(rules: Sequence[AccessRule] = ()) -> tuple[ProxyRuntime, MultiplexUpstream, StubUpstream]:
    tools = [tool("cart", _meta=PAGE), tool("refresh_cart", _meta=APP_ONLY)]
    server = StubUpstream(tools, echo, name="shop")
    fleet = MultiplexUpstream([server])
    runtime = ProxyRuntime(fleet, RuntimeOptions(RuntimePolicies(access=AccessPolicy(rules))))
    await runtime.refresh_catalog()
    return runtime, fleet, server


@requirement("ROUTE-51")
async def test_a_tool_for_apps_only_exists_for_no_model() -> None:
    runtime, _, server = await shop()
    (hidden,) = runtime.catalog().app_tools
    assert hidden.startswith("shop:refresh_cart")
    gateway, transparent = GatewayFace(runtime), TransparentFace(runtime)
    registry = RegistryFace(Operations(runtime))
    for asked in ({"query": "refresh cart"}, {"path": "/shop"}):
        shown = (await gateway.call("tool_browse", asked, OWNER)).text
        assert "shop:cart" in shown and "refresh" not in shown
    assert not any("refresh" in each.name for each in transparent.tools(OWNER))
    assert "refresh" not in (await registry.call("search", {"query": "refresh cart"}, OWNER)).text
    for wanted in (hidden, "shop:refresh_cart", "/shop/refresh_cart"):
        for result in (
            await gateway.call("tool_execute", {"tool_id": wanted, "args": {}}, OWNER),
            await transparent.call("tool_execute", {"tool_id": wanted}, OWNER),
            await transparent.call("tool_hydrate", {"tool_id": wanted}, OWNER),
            await registry.call("call", {"operation": wanted.replace(":", "/")}, OWNER),
        ):
            assert result.is_error
    assert server.calls == []


@requirement("ROUTE-51", "ROUTE-52")
async def test_an_app_may_call_its_tool_through_the_namespaced_face_as_far_as_policy_goes() -> None:
    runtime, fleet, server = await shop()
    face = NamespacedFace(runtime, fleet.statuses)
    shown = {each.name: each for each in face.tools(HOST)}
    assert shown["shop__refresh_cart"].more["_meta"] == {
        "ui": {"resourceUri": "ui://shop/shop/cart.html", "visibility": ["app"]}
    }
    assert (await face.call("shop__refresh_cart", {"text": "a"}, HOST)).as_it_came is not None
    assert [(name, args) for name, args, _ in server.calls] == [("refresh_cart", {"text": "a"})]
    taught = (await face.call("shop__refresh_cart", {"wrong": 1}, HOST)).structured
    assert taught["error"] == "ARGS_INVALID"
    stranger = CallContext(Identity("reader", ("tools:shop:cart",)), "trace", "session", SHOWS_APPS)
    assert [each.name for each in face.tools(stranger)] == ["shop__cart"]
    assert (await refusal(face, "shop__refresh_cart", {}, stranger)).code == -32602
    friend = CallContext(Identity("app", ("tools:shop:refresh_cart",)), "trace", "session", SHOWS_APPS)
    assert [each.name for each in face.tools(friend)] == ["shop__refresh_cart"]

    runtime, fleet, server = await shop([AccessRule("shop:refresh_*", effect="deny")])
    face = NamespacedFace(runtime, fleet.statuses)
    assert [each.name for each in face.tools(HOST)] == ["shop__cart"]
    assert (await refusal(face, "shop__refresh_cart", {}, HOST)).code == -32602
    runtime, fleet, server = await shop([AccessRule("shop:refresh_*", approval="always")])
    asked = await NamespacedFace(runtime, fleet.statuses).call("shop__refresh_cart", {}, HOST)
    assert (asked.structured["error"], server.calls) == ("APPROVAL_REQUIRED", [])


@requirement("ROUTE-51", "FACE-64")
async def test_a_tool_for_apps_only_is_not_there_for_a_client_that_shows_none() -> None:
    runtime, fleet, server = await shop()
    face = NamespacedFace(runtime, fleet.statuses)
    assert [each.name for each in face.tools(OWNER)] == ["shop__cart"]
    assert face.tools(OWNER) is face.tools(OWNER)
    hidden = await refusal(face, "shop__refresh_cart", {"text": "a"})
    assert (hidden.code, hidden.message) == (-32602, "Tool 'shop__refresh_cart' not found")
    assert server.calls == []


@requirement("ROUTE-51")
async def test_a_change_of_a_tool_for_apps_is_announced() -> None:
    runtime, fleet, server = await shop()
    face, heard = NamespacedFace(runtime, fleet.statuses), list[None]()
    runtime.changes.watch(lambda: heard.append(None))
    server.tools = [tool("cart", _meta=PAGE), tool("refresh_cart", _meta=APP_ONLY), tool("empty_cart", _meta=APP_ONLY)]
    await runtime.refresh_catalog()
    assert heard and "shop__empty_cart" in [each.name for each in face.tools(HOST)]

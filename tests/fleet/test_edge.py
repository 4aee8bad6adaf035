"""The edge of an upstream: the gate's own credentials are masked, and only the gate writes ``wicketgate/`` keys."""

import base64
import html
import json
import threading
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fleet.test_features import Scripted
from tests.fleet.test_guarded_features import WithFeatures
from tests.support.recording_caller import RecordingCaller
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.errors import InputRequired, UpstreamRefused
from wicketgate.fleet.edge import KnownSecrets
from wicketgate.fleet.member import Member
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

SECRET = 'apisecret-"1/2"'
CONTEXT = CallContext(Identity("owner", ("*",)), "trace", "session")


def member_that_says(says: Any, *secrets: str) -> Member:
    async def handler(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if isinstance(says, Exception):
            raise says
        answer: Mapping[str, Any] = says
        return answer

    return Member(StubUpstream([], handler, name="shop"), secrets=KnownSecrets(secrets))


@requirement("UP-58")
@pytest.mark.parametrize(
    "spelling",
    [
        SECRET,
        json.dumps(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        "apisecret-%221%2F2%22",
    ],
)
async def test_a_result_holds_no_credential_in_any_of_its_usual_spellings(spelling: str) -> None:
    says = {
        "content": [{"type": "text", "text": f"got {spelling}."}, {"type": "resource", "resource": {"text": spelling}}],
        "structuredContent": {"headers": [{"Authorization": f"Bearer {spelling}"}], f"k{spelling}": 1},
        "_meta": {"note": spelling},
    }
    member = member_that_says(says, f"Bearer {SECRET}")
    result = json.dumps(await member.call_tool("x", {}, CONTEXT, 5))
    assert "apisecret" not in result
    assert spelling.strip('"') not in result
    assert "got " in result
    assert result.count("[redacted]") >= 5


ODD = "Abcd+ef/gh&jk=lm<9>Zz 12345678"


@requirement("UP-61")
@pytest.mark.parametrize(
    "spelling",
    [
        ODD.replace("/", "\\/"),
        ODD.replace("+", "\\u002B").replace("&", "\\u0026").replace("<", "\\u003C"),
        json.dumps(json.dumps(ODD.replace("/", "\\/"))),
        html.escape(ODD),
        ODD.replace("+", "&#43;").replace("/", "&#x2F;").replace("=", "&equals;"),
        html.escape(html.escape(ODD)),
        quote(ODD, safe="").replace("%2B", "%2b").replace("%2F", "%2f"),
        quote(ODD, safe="+&=/"),
        quote_plus(ODD),
        quote(quote(ODD, safe=""), safe=""),
        base64.b64encode(f"key: {ODD}!".encode()).decode(),
        base64.b64encode(f" key: {ODD}!".encode()).decode(),
        base64.urlsafe_b64encode(f"  key: {ODD}??".encode()).decode(),
    ],
)
async def test_a_credential_is_masked_as_the_writers_of_json_html_and_urls_spell_it(spelling: str) -> None:
    says = {"content": [{"type": "text", "text": f"got {spelling}."}], "structuredContent": {"seen": [spelling]}}
    result = json.dumps(await member_that_says(says, ODD).call_tool("x", {}, CONTEXT, 5))
    assert result.count("[redacted]") == 2
    for piece in ("Abcd", "Zz", base64.b64encode(b"Zz 12345").decode()[:8]):
        assert piece not in result


@requirement("UP-61")
@pytest.mark.parametrize("before", range(3))
async def test_bytes_in_base64_hold_no_credential(before: int) -> None:
    data = b"\xff" * before + f"Authorization: Bearer {ODD}\r\n\r\n".encode() + b"\x00\xff"
    blob = base64.b64encode(data).decode()
    says = {
        "content": [
            {"type": "resource", "resource": {"uri": "a://b", "blob": blob}},
            {"type": "image", "data": blob, "mimeType": "text/plain"},
        ]
    }
    result = await member_that_says(says, f"Bearer {ODD}").call_tool("x", {}, CONTEXT, 5)
    assert json.loads(json.dumps(result)) == result
    shown = [result["content"][0]["resource"]["blob"], result["content"][1]["data"]]
    for each in shown:
        assert base64.b64decode(each, validate=True) == data.replace(ODD.encode(), b"[redacted]")


@requirement("UP-61")
async def test_values_that_share_a_beginning_with_a_credential_stay() -> None:
    says = {"content": [{"type": "text", "text": "Abcd+ef/gh is not Abcd%2Bef%2Fgh%26jk%3Dlm"}]}
    assert await member_that_says(says, ODD).call_tool("x", {}, CONTEXT, 5) == says


@requirement("UP-61")
@given(secret=st.text(min_size=8, max_size=40), twice=st.booleans())
def test_whatever_characters_a_credential_has_it_is_found_in_json_and_urls(secret: str, twice: bool) -> None:
    secrets = KnownSecrets([secret])
    if secret not in secrets.forms:
        return  # a scheme or a cookie: its parts count
    in_url = quote(quote(secret, safe=""), safe="") if twice else quote(secret, safe="")
    in_json = json.dumps(json.dumps(secret) if twice else secret)
    for spelt in (secret, in_url, in_json, html.escape(secret)):
        assert "[redacted]" in secrets.mask(f"({spelt})")


@requirement("UP-58")
async def test_the_password_of_a_basic_credential_is_masked_and_short_values_are_not() -> None:
    pair = base64.b64encode(b"user:longpassword").decode()
    says = {"content": [{"type": "text", "text": f"{pair} longpassword user short12"}]}
    member = member_that_says(says, f"Basic {pair}", "short12")
    result = await member.call_tool("x", {}, CONTEXT, 5)
    assert result["content"][0]["text"] == "[redacted] [redacted] user short12"


@requirement("UP-58")
async def test_a_result_without_a_credential_stays_the_same_object() -> None:
    says = {"content": [{"type": "text", "text": "plain", "_meta": {"mine": 1}}], "_meta": {}}
    assert await member_that_says(says, SECRET).call_tool("x", {}, CONTEXT, 5) is says


@requirement("UP-58")
async def test_a_large_result_is_searched_in_every_part() -> None:
    rows = [{"id": number, "text": "x" * 20} for number in range(30_000)]
    rows[29_999]["text"] = f"{SECRET}!"
    member = member_that_says({"content": [], "structuredContent": {"rows": rows}}, SECRET)
    result = await member.call_tool("x", {}, CONTEXT, 5)
    assert result["structuredContent"]["rows"][29_999]["text"] == "[redacted]!"
    assert result["structuredContent"]["rows"][:29_999] == rows[:29_999]


@requirement("UP-58")
async def test_the_words_of_a_refusal_are_masked_also_where_they_were_cut() -> None:
    refused = UpstreamRefused("no", code=-1, refusal=f"sent {SECRET[:10]}", data={"seen": SECRET})
    with pytest.raises(UpstreamRefused) as caught:
        await member_that_says(refused, SECRET).call_tool("x", {}, CONTEXT, 5)
    assert caught.value.refusal == "sent [redacted]"
    assert caught.value.data == {"seen": "[redacted]"}
    assert "apisecret" not in str(caught.value.as_dict())
    says = {"isError": True, "content": [{"type": "text", "text": f"head {SECRET[:9]}… (cut)"}]}
    shown = await member_that_says(says, SECRET).call_tool("x", {}, CONTEXT, 5)
    assert shown["content"][0]["text"] == "head [redacted]… (cut)"


@requirement("UP-63")
async def test_an_error_of_very_many_texts_is_cleaned_beside_the_event_loop() -> None:
    threads: set[threading.Thread] = set()

    class Seen(KnownSecrets):
        def mask_cut(self, text: str) -> str:
            threads.add(threading.current_thread())
            return super().mask_cut(text)

    says = {"isError": True, "content": [{"type": "text", "text": f"n {number}"} for number in range(20_000)]}

    async def handler(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return says

    member = Member(StubUpstream([], handler, name="shop"), secrets=Seen([SECRET]))
    assert await member.call_tool("x", {}, CONTEXT, 30) == says
    assert threads and threading.main_thread() not in threads


@requirement("UP-58")
@given(st.text("ab", max_size=30), st.text("ab", max_size=30))
def test_the_longest_beginning_of_a_credential_at_a_cut_is_masked(before: str, secret: str) -> None:
    secret = f"abab{secret}abab!"
    secrets = KnownSecrets([secret])
    for kept in range(8, len(secret)):
        shown = secrets.mask_cut(f"{before}{secret[:kept]}… (cut)")
        assert shown.endswith("[redacted]… (cut)")
        assert f"{before}{secret[:kept]}".startswith(shown.removesuffix("[redacted]… (cut)"))


@requirement("UP-58")
async def test_progress_log_messages_and_questions_are_masked_too() -> None:
    async def handler(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await context.caller.progress(1, None, f"at {SECRET}")
        await context.caller.log("info", {"headers": [SECRET]}, SECRET)
        await context.caller.ask("elicitation/create", {"message": SECRET, "_meta": {"wicketgate/x": 1}})
        raise InputRequired({"a": {"params": {"message": SECRET}}}, f"state {SECRET}")

    caller = RecordingCaller("now", {"action": "accept"})
    member = Member(StubUpstream([], handler, name="shop"), secrets=KnownSecrets([SECRET]))
    with pytest.raises(InputRequired) as asked:
        await member.call_tool("x", {}, CallContext(Identity("owner"), "t", "s", caller), 5)
    assert caller.told == [
        ("progress", 1, None, "at [redacted]"),
        ("log", "info", {"headers": ["[redacted]"]}, "[redacted]"),
    ]
    assert caller.asked == [("elicitation/create", {"message": "[redacted]"})]
    assert asked.value.requests == {"a": {"params": {"message": "[redacted]"}}}
    assert asked.value.request_state == f"state {SECRET}", "it is the server's own, byte for byte"


@requirement("UP-250")
async def test_no_hidden_or_control_character_is_in_progress_log_messages_or_refusals() -> None:
    async def handler(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        await context.caller.progress(1, None, "half\x1b[2J done\u202e")
        await context.caller.log("info", {"a\t\x1bb": ["one\x9b\r\n\ttwo", 5, None]}, "log\x07ger")
        raise UpstreamRefused("shop refused it.", code=-32001, refusal="no\x1b[31m such", data={"raw": "\x1b"})

    caller = RecordingCaller()
    member = Member(StubUpstream([], handler, name="shop"))
    with pytest.raises(UpstreamRefused) as refused:
        await member.call_tool("x", {}, CallContext(Identity("owner"), "t", "s", caller), 5)
    assert caller.told == [
        ("progress", 1, None, "half[2J done"),
        ("log", "info", {"a\tb": ["one\n\ttwo", 5, None]}, "logger"),
    ]
    assert (refused.value.refusal, refused.value.data) == ("no[31m such", {"raw": "\x1b"})


@requirement("UP-58")
async def test_definitions_resources_prompts_and_instructions_are_masked_too() -> None:
    inner = Scripted([{"uri": "a", "description": SECRET}])
    upstream = WithFeatures(inner)
    upstream.tools = [{"name": "a", "description": SECRET}]
    member = Member(upstream, secrets=KnownSecrets([SECRET]))
    assert await member.list_tools() == [{"name": "a", "description": "[redacted]"}]
    assert member.features is not None
    assert (await member.features.list_all("resources")).items == [{"uri": "a", "description": "[redacted]"}]
    read = await member.features.request("resources/read", {"uri": SECRET}, CONTEXT, 5)
    assert read == {"asked": {"uri": "[redacted]"}}


@requirement("UP-58")
async def test_a_token_that_is_fetched_later_is_masked_from_then_on() -> None:
    secrets = KnownSecrets()

    async def handler(name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        return {"content": [{"type": "text", "text": "token-of-today"}]}

    member = Member(StubUpstream([], handler, name="shop"), secrets=secrets)
    assert (await member.call_tool("x", {}, CONTEXT, 5))["content"][0]["text"] == "token-of-today"
    secrets.learn("token-of-today")
    assert (await member.call_tool("x", {}, CONTEXT, 5))["content"][0]["text"] == "[redacted]"


@requirement("UP-57")
async def test_keys_of_ours_in_a_servers_meta_are_dropped_wherever_they_stand() -> None:
    forged = {"wicketgate/correlation_id": "theirs", "io.example/x": 1}
    says = {
        "content": [{"type": "text", "text": "x", "_meta": dict(forged)}],
        "structuredContent": {"wicketgate/data": 1},
        "_meta": {"wicketgate/tokens": 1},
    }
    result = await member_that_says(says).call_tool("x", {}, CONTEXT, 5)
    assert result == {
        "content": [{"type": "text", "text": "x", "_meta": {"io.example/x": 1}}],
        "structuredContent": {"wicketgate/data": 1},
    }
    upstream = WithFeatures(Scripted([{"uri": "a", "_meta": dict(forged)}]))
    upstream.tools = [{"name": "a", "_meta": {**forged, "wicketgate/operation": "subscription"}}]
    member = Member(upstream)
    assert await member.list_tools() == [
        {"name": "a", "_meta": {"io.example/x": 1, "wicketgate/operation": "subscription"}}
    ]
    assert member.features is not None
    assert (await member.features.list_all("resources")).items == [{"uri": "a", "_meta": {"io.example/x": 1}}]


@requirement("CARD-54")
async def test_a_listing_that_is_as_it_was_is_not_cleaned_again() -> None:
    secrets = KnownSecrets([SECRET])
    tools: list[dict[str, Any]] = [
        {"name": "plain"},
        {"name": "ours", "_meta": {"wicketgate/source": "x", "page": 1}},
        {"name": "other"},
    ]
    upstream = StubUpstream(tools, name="shop")
    member = Member(upstream, secrets=secrets)
    first = await member.list_tools()
    assert [dict(tool) for tool in first] == [tools[0], {"name": "ours", "_meta": {"page": 1}}, tools[2]]

    upstream.tools = json.loads(json.dumps(tools))
    assert await member.list_tools() is first

    # Of a changed listing only what changed is new.
    upstream.tools = json.loads(json.dumps([*tools[:2], {"name": "other", "title": SECRET}]))
    second = await member.list_tools()
    assert [now is then for now, then in zip(second, first, strict=True)] == [True, True, False]
    assert SECRET not in json.dumps(second[2])


@requirement("CARD-54")
async def test_a_listing_that_is_as_it_was_is_cleaned_of_a_credential_that_is_known_since() -> None:
    secrets = KnownSecrets()
    member = Member(StubUpstream([{"name": "t", "description": f"Uses {SECRET}."}], name="shop"), secrets=secrets)
    assert SECRET in str(await member.list_tools())
    secrets.learn(SECRET)
    assert SECRET not in str(await member.list_tools())

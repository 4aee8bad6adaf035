"""The registry face: four tools in front of every operation (CARD-18, FACE-22 to FACE-31, ACCESS-9)."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import anyio
import pytest

from tests.support.effort import bounded_effort
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.access.policy import AccessPolicy, AccessRule
from wicketgate.catalog.tool_id import hash8
from wicketgate.errors import UpstreamRefused, UpstreamTimeout
from wicketgate.faces.gateway import GatewayFace
from wicketgate.faces.namespaced import NamespacedFace
from wicketgate.faces.operations import BATCH_AT_ONCE, MAX_BATCH, Operations
from wicketgate.faces.registry import RegistryFace
from wicketgate.faces.surface import SurfaceResult
from wicketgate.faces.transparent import TransparentFace
from wicketgate.fleet.member import MultiplexUpstream
from wicketgate.gateway.options import RuntimeOptions, RuntimePolicies
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.tokens import Cl100kCounter, shipped_token_counter, truncate
from wicketgate.upstreams.embedded import StubUpstream

OWNER = CallContext(Identity("owner_1", ("*",)), "req_1", "s")
READER = CallContext(Identity("reader_1", ("tools:fs:readFile", "tools:echo:*")), "req_2", "s")
NOBODY = CallContext(Identity("nobody", ()), "req_3", "s")
READ_ONLY = {"annotations": {"readOnlyHint": True}}
BOUND_S = 30.0

SERVERS: Mapping[str, Sequence[Mapping[str, Any]]] = {
    "fs": [
        {
            "name": "readFile",
            "description": "Read a file.",
            "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
            "outputSchema": {"type": "object"},
            **READ_ONLY,
        },
        {"name": "writeFile", "description": "Write a file."},
    ],
    "echo": [{"name": "run", "description": "Give the input back."}],
    "boom": [
        {"name": "run", "description": "Always fails."},
        {"name": "late", "description": "Never answers."},
    ],
    "shapes": [{"name": "text", "description": "Text."}, {"name": "list", "description": "A list."},
               {"name": "image", "description": "An image."}],
    "events": [{"name": "stream", "description": "Events.", "_meta": {"wicketgate/operation": "subscription"}}],
}  # fmt: skip
IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
TEXT = {"type": "text", "text": "See:"}
TWIN = {"result": [{**TEXT, "annotations": None}, {**IMAGE, "annotations": None}]}


class Servers:
    """The upstreams; ``open_gate`` lets waiting calls of ``echo`` go on."""

    def __init__(self) -> None:
        self.waiting = 0
        self.gate = asyncio.Event()
        self.reached = asyncio.Event()
        self.reach = 0
        self.stubs = {name: StubUpstream(tools, self.answer, name=name) for name, tools in SERVERS.items()}

    async def answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if arguments.get("wait"):
            self.waiting += 1
            if self.waiting == self.reach:
                self.reached.set()
            await self.gate.wait()
        match name:
            case "late" if arguments.get("odd"):
                raise UpstreamRefused("boom refused the call.", code=-31_999, refusal="E_MADE_UP")
            case "late":
                raise UpstreamTimeout("boom did not answer within 1 s.")
            case "run" if arguments.get("fail"):
                return {"content": [{"type": "text", "text": "no such row"}], "isError": True}
            case "text":
                return {"content": [{"type": "text", "text": "plain"}]}
            case "list":
                return {"content": [], "structuredContent": [1, 2]}
            case "image" if arguments.get("twice"):
                return {"content": [TEXT, IMAGE], "structuredContent": TWIN}
            case "image":
                return {"content": [IMAGE]}
        return {"content": [{"type": "text", "text": json.dumps(arguments)}], "structuredContent": dict(arguments)}

    def calls(self) -> list[tuple[str, str]]:
        return [(name, tool) for name, stub in self.stubs.items() for tool, _, _ in stub.calls]


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
async def face(servers: Servers) -> RegistryFace:
    fleet = MultiplexUpstream(list(servers.stubs.values()))
    runtime = ProxyRuntime(fleet)
    await runtime.refresh_catalog()
    return RegistryFace(Operations(runtime))


async def found(face: RegistryFace, context: CallContext = OWNER, **arguments: Any) -> list[str]:
    result = await face.call("search", arguments, context)
    assert not result.is_error, result.structured
    return [operation["name"] for operation in result.structured["operations"]]


def error_of(result: SurfaceResult) -> tuple[str, str]:
    assert result.is_error
    assert json.loads(result.text) == result.structured
    assert isinstance(result.structured["retryable"], bool)
    return result.structured["code"], result.structured["message"]


@requirement("FACE-22")
async def test_there_are_always_four_tools_in_this_order(face: RegistryFace) -> None:
    tools = face.tools(OWNER)
    assert [(tool.name, tool.read_only) for tool in tools] == [
        ("search", True),
        ("schema", True),
        ("call", False),
        ("batch", False),
    ]


@requirement("FACE-22")
async def test_an_unknown_tool_is_a_result(face: RegistryFace) -> None:
    assert error_of(await face.call("bogus", {}, OWNER)) == ("NOT_FOUND", "unknown gateway tool: bogus")


@requirement("CARD-18", "FACE-23")
async def test_search_lists_what_the_caller_may_call_by_name_and_no_subscription(face: RegistryFace) -> None:
    assert await found(face) == [
        "/boom/late", "/boom/run", "/echo/run", "/fs/readFile", "/fs/writeFile", "/shapes/image", "/shapes/list",
        "/shapes/text",
    ]  # fmt: skip
    assert await found(face, READER) == ["/echo/run", "/fs/readFile"]
    assert await found(face, NOBODY) == []


@requirement("FACE-23")
async def test_an_entry_says_what_the_operation_does_and_shows_no_schema(face: RegistryFace) -> None:
    result = await face.call("search", {"query": "readFile", "limit": 1}, OWNER)
    assert result.structured["operations"] == [
        {"name": "/fs/readFile", "description": "Read a file.", "namespace": "fs", "type": "query"}
    ]


@requirement("FACE-24")
async def test_search_finds_words_and_parts_of_words_in_names_and_descriptions(face: RegistryFace) -> None:
    assert (await found(face, query="READ"))[0] == "/fs/readFile"
    assert await found(face, query="riteF") == ["/fs/writeFile"]
    assert await found(face, query="zzz") == []
    assert await found(face, namespace="echo") == ["/echo/run"]


@requirement("FACE-51")
async def test_a_null_field_of_a_search_is_as_if_it_were_absent(face: RegistryFace) -> None:
    nulls = dict.fromkeys(("namespace", "limit", "cursor"))
    told = await face.call("search", {"query": "readFile", **nulls}, OWNER)
    assert (told.is_error, told.structured) == (
        False,
        (await face.call("search", {"query": "readFile"}, OWNER)).structured,
    )


@requirement("FACE-24")
@pytest.mark.parametrize("arguments", [{"query": 5}, {"namespace": []}, {"limit": 0}, {"limit": "2"}, {"cursor": "x"}])
async def test_a_search_that_makes_no_sense_is_refused(face: RegistryFace, arguments: dict[str, Any]) -> None:
    assert error_of(await face.call("search", arguments, OWNER))[0] == "INVALID_INPUT"


@requirement("FACE-24")
async def test_a_long_list_comes_in_pages_that_add_up(face: RegistryFace) -> None:
    names: list[str] = []
    arguments: dict[str, Any] = {"limit": 3}
    with anyio.fail_after(BOUND_S):
        while True:
            page = (await face.call("search", arguments, OWNER)).structured
            names += [operation["name"] for operation in page["operations"]]
            assert page["total"] == 8
            if "next_cursor" not in page:
                break
            arguments["cursor"] = page["next_cursor"]
    assert names == await found(face)
    other = await face.call("search", {**arguments, "query": "file"}, OWNER)
    assert error_of(other)[0] == "INVALID_INPUT"  # a cursor is good for its own search only


@requirement("FACE-25")
@pytest.mark.parametrize("name", ["fs/readFile", "/fs/readFile"])
async def test_schema_gives_the_full_specification(face: RegistryFace, name: str) -> None:
    spec = (await face.call("schema", {"name": name}, OWNER)).structured
    assert (spec["name"], spec["namespace"], spec["type"], spec["visibility"]) == (
        "/fs/readFile", "fs", "query", "external",
    )  # fmt: skip
    assert spec["input_schema"]["required"] == ["path"]
    assert spec["output_schema"] == {"type": "object"}
    assert {error["code"] for error in spec["error_schemas"]} >= {"NOT_FOUND", "INVALID_INPUT", "TIMEOUT"}
    assert spec["access_control"]["required_scopes"] == ["tools:fs:readFile"]


@requirement("FACE-25", "ACCESS-9")
async def test_schema_says_what_access_takes_and_an_operation_without_it_is_not_there(servers: Servers) -> None:
    rules = [
        AccessRule("fs:writeFile", require=("admin", "fs:write"), require_any=("a", "b")),
        AccessRule("echo:run", approval="always"),
    ]
    runtime = ProxyRuntime(
        MultiplexUpstream(list(servers.stubs.values())),
        RuntimeOptions(RuntimePolicies(access=AccessPolicy(rules))),
    )
    await runtime.refresh_catalog()
    face = RegistryFace(Operations(runtime))
    spec = (await face.call("schema", {"name": "fs/writeFile"}, OWNER)).structured
    assert spec["access_control"] == {
        "required_scopes": ["tools:fs:writeFile", "admin"],
        "required_scopes_any": ["a", "b"],
        "resource_type": "fs",
        "resource_action": "write",
        "approval": "never",
    }
    for permissions in (("tools:*",), ("tools:*", "admin", "a"), ("tools:*", "a", "fs:write"), ("admin", "a", "fs:*")):
        lacking = CallContext(Identity("somebody", permissions), "req_4", "s")
        assert error_of(await face.call("schema", {"name": "fs/writeFile"}, lacking))[0] == "NOT_FOUND"
    waiting = await face.call("call", {"operation": "echo/run"}, OWNER)
    assert error_of(waiting)[0] == "APPROVAL_REQUIRED"


@requirement("FACE-25")
@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("schema", {}, "name"),
        ("schema", {"name": 5}, "name"),
        ("call", {}, "operation"),
        ("call", {"operation": 7}, "operation"),
    ],
)
async def test_a_missing_name_is_refused_with_its_field(
    face: RegistryFace, tool: str, arguments: dict[str, Any], field: str
) -> None:
    assert error_of(await face.call(tool, arguments, OWNER)) == ("INVALID_INPUT", f"missing required field: {field}")


@requirement("FACE-191")
@pytest.mark.parametrize("key", ["name", "operation"])
async def test_an_operation_is_named_by_either_word(face: RegistryFace, key: str) -> None:
    named = {key: "echo/run"}
    results = [
        await face.call("schema", named, OWNER),
        await face.call("call", {**named, "input": {"msg": "hi"}}, OWNER),
        await face.call("batch", {"calls": [{**named, "input": {"msg": "hi"}}]}, OWNER),
    ]
    assert not any(result.is_error or "INVALID_INPUT" in result.text[:40] for result in results)
    assert results[2].structured["results"][0]["isError"] is False


@requirement("FACE-25")
@pytest.mark.parametrize(
    ("tool", "arguments", "field"),
    [
        ("search", {"top_k": 5}, "top_k"),
        ("schema", {"operation": "echo/run", "name": "echo/run"}, "operation"),
        ("call", {"operation": "echo/run", "args": {"msg": "hi"}}, "args"),
        ("batch", {"calls": [], "limit": 5}, "limit"),
    ],
)
async def test_an_unknown_field_is_refused_and_nothing_runs(
    face: RegistryFace, servers: Servers, tool: str, arguments: dict[str, Any], field: str
) -> None:
    code, message = error_of(await face.call(tool, arguments, OWNER))
    assert (code, f"no field '{field}'" in message) == ("INVALID_INPUT", True)
    assert servers.calls() == []


@requirement("CARD-18", "FACE-26")  # fmt: skip
@pytest.mark.parametrize("name", ["no/such", "/fs/writeFile", "events/stream", "search", "services/list"])
async def test_unknown_and_hidden_operations_get_the_same_answer(face: RegistryFace, name: str) -> None:
    for tool, arguments in (("schema", {"name": name}), ("call", {"operation": name, "input": {}})):
        result = await face.call(tool, arguments, READER)
        assert result.structured == {
            "code": "NOT_FOUND", "message": f"operation not found: {name}", "retryable": False,
        }  # fmt: skip


@requirement("FACE-22", "FACE-27")
@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        ({"operation": "echo/run", "input": {"msg": "hi"}}, {"msg": "hi"}),
        ({"operation": "/echo/run", "input": {}}, {}),
        ({"operation": "echo/run"}, {}),
        ({"operation": "echo/run", "input": None}, {}),
    ],
)
async def test_call_gives_the_output_as_structure_and_as_text(
    face: RegistryFace, arguments: dict[str, Any], output: dict[str, Any]
) -> None:
    result = await face.call("call", arguments, OWNER)
    assert (result.is_error, result.structured) == (False, output)
    assert json.loads(result.content[0]["text"]) == output


@requirement("FACE-27")
async def test_outputs_that_are_no_objects_are_wrapped_in_one(face: RegistryFace) -> None:
    text = await face.call("call", {"operation": "shapes/text"}, OWNER)
    assert (text.structured, text.content[0]["text"]) == ({"result": "plain"}, "plain")
    listed = await face.call("call", {"operation": "shapes/list"}, OWNER)
    assert (listed.structured, listed.content[0]["text"]) == ({"result": [1, 2]}, "[1,2]")
    image = await face.call("call", {"operation": "shapes/image"}, OWNER)
    assert (list(image.content), image.structured) == ([IMAGE], {"result": [IMAGE]})


@requirement("FACE-101")
async def test_a_picture_that_has_a_structured_twin_is_shown_as_a_picture(face: RegistryFace) -> None:
    twice = {"operation": "shapes/image", "input": {"twice": True}}
    twin = await face.call("call", twice, OWNER)
    assert (list(twin.content), twin.structured) == ([TEXT, IMAGE], TWIN)
    batch = await face.call("batch", {"calls": [twice]}, OWNER)
    assert batch.structured["results"][0]["output"] == TWIN


@requirement("FACE-28")
@pytest.mark.parametrize("given", [[1], 5, {"path": 7}, {}])
async def test_input_that_does_not_fit_never_reaches_the_server(
    face: RegistryFace, servers: Servers, given: object
) -> None:
    result = await face.call("call", {"operation": "fs/readFile", "input": given}, OWNER)
    assert error_of(result)[0] == "INVALID_INPUT"
    assert servers.calls() == []


@requirement("FACE-29")
async def test_an_error_of_the_tool_itself_carries_its_content(face: RegistryFace) -> None:
    result = await face.call("call", {"operation": "boom/run", "input": {"fail": True}}, OWNER)
    assert error_of(result)[0] == "MCP_TOOL_ERROR"
    assert result.structured["details"] == {"content": [{"type": "text", "text": "no such row"}]}


@requirement("FACE-29")
async def test_a_late_server_is_a_timeout_whose_effect_is_not_known(face: RegistryFace) -> None:
    result = await face.call("call", {"operation": "boom/late"}, OWNER)
    assert (error_of(result)[0], result.structured["retryable"]) == ("TIMEOUT", False)


@requirement("FACE-22", "FACE-30")
async def test_a_batch_gives_each_call_its_own_end_in_the_order_of_the_calls(face: RegistryFace) -> None:
    calls = [
        {"operation": "echo/run", "input": {"n": 1}},
        {"operation": "no/such", "input": {}},
        5,
        {"operation": "fs/writeFile"},
        {"operation": "echo/run", "input": {"n": 1}},
    ]
    result = await face.call("batch", {"calls": calls}, READER)
    assert not result.is_error
    ends = result.structured["results"]
    assert [end["request_id"] for end in ends] == [f"req_2.{number}" for number in range(1, 6)]
    assert [end.get("output", end.get("error", {}).get("code")) for end in ends] == [
        {"n": 1}, "NOT_FOUND", "INVALID_INPUT", "NOT_FOUND", {"n": 1},
    ]  # fmt: skip
    assert [end["isError"] for end in ends] == [False, True, True, True, False]


@requirement("FACE-30")
async def test_calls_of_a_batch_run_side_by_side_up_to_the_limit(face: RegistryFace, servers: Servers) -> None:
    servers.reach = BATCH_AT_ONCE
    calls = [{"operation": "echo/run", "input": {"wait": True}}] * (BATCH_AT_ONCE + 3)
    batch = asyncio.create_task(face.call("batch", {"calls": calls}, OWNER))
    with anyio.fail_after(BOUND_S):
        await servers.reached.wait()
        assert servers.waiting == BATCH_AT_ONCE
        servers.gate.set()
        assert len((await batch).structured["results"]) == len(calls)


@requirement("FACE-31")
async def test_a_batch_that_is_none_or_too_long_is_refused_before_anything_runs(
    face: RegistryFace, servers: Servers
) -> None:
    for calls in (None, "x", 5):
        result = await face.call("batch", {"calls": calls}, OWNER)
        assert error_of(result) == ("INVALID_INPUT", "missing required field: calls")
    too_many = [{"operation": "echo/run"}] * (MAX_BATCH + 1)
    assert error_of(await face.call("batch", {"calls": too_many}, OWNER))[0] == "INVALID_INPUT"
    assert servers.calls() == []
    assert (await face.call("batch", {"calls": []}, OWNER)).structured == {"results": []}


@requirement("FACE-30")
async def test_a_caller_that_leaves_ends_the_whole_batch(face: RegistryFace, servers: Servers) -> None:
    servers.reach = BATCH_AT_ONCE
    calls = [{"operation": "echo/run", "input": {"wait": True}}] * (BATCH_AT_ONCE + 3)
    batch = asyncio.create_task(face.call("batch", {"calls": calls}, OWNER))
    with anyio.fail_after(BOUND_S):
        await servers.reached.wait()
        batch.cancel()
        with pytest.raises(asyncio.CancelledError):
            await batch
    assert len(servers.calls()) == BATCH_AT_ONCE


@requirement("FACE-35")
async def test_no_operation_is_unknown_before_the_servers_have_started() -> None:
    runtime = ProxyRuntime(StubUpstream([]))
    face = RegistryFace(Operations(runtime, started=lambda: False))
    for tool, arguments in (("search", {}), ("schema", {"name": "a/b"}), ("call", {"operation": "a/b"})):
        result = await face.call(tool, arguments, OWNER)
        assert (error_of(result)[0], result.structured["retryable"]) == ("UNAVAILABLE", True)


@requirement("FACE-29")
async def test_an_undeclared_code_is_an_internal_failure(face: RegistryFace) -> None:
    result = await face.call("call", {"operation": "boom/late", "input": {"odd": True}}, OWNER)
    assert error_of(result) == ("INTERNAL", "boom refused the call.")


async def face_of(*tools: Mapping[str, Any], **policies: Any) -> RegistryFace:
    stub = StubUpstream(list(tools), Servers().answer, name="hub")
    runtime = ProxyRuntime(stub, RuntimeOptions(RuntimePolicies(**policies)))
    await runtime.refresh_catalog()
    return RegistryFace(Operations(runtime))


async def descriptions(face: RegistryFace, **arguments: Any) -> dict[str, str]:
    result = await face.call("search", {"limit": 200, **arguments}, OWNER)
    return {each["name"]: each["description"] for each in result.structured["operations"]}


PROSE = "Lists every order of a customer. It takes a customer's number and a range of days, both of which have to be "
TEXTS: dict[str, str] = {
    "short": "Lists orders.",
    "prose": PROSE + "given, " * 400,
    "endless": "word " * 2_400,
    "lines": "Lists\r\n\torders.\u2028\u200b" + "\nmore and " * 1_500,
    "signs": "\u202e!?." * 3_000,
    "none": "",
}


@requirement("FACE-47")
async def test_search_cuts_descriptions_to_thirty_tokens_of_one_line_and_schema_gives_them_whole() -> None:
    face = await face_of(*({"name": name, "description": text} for name, text in TEXTS.items()))
    shown = await descriptions(face)
    counter = shipped_token_counter()
    for name, text in TEXTS.items():
        cut = shown[f"/hub/{name}"]
        assert counter.count(cut) <= 30
        assert cut.isprintable()
        spec = (await face.call("schema", {"name": f"hub/{name}"}, OWNER)).structured
        # Whole, but for the characters that nobody sees (FACE-164).
        assert spec["description"] == re.sub("[\r\u2028\u200b\u202e]", "", text)
    assert shown["/hub/short"] == TEXTS["short"]
    assert shown["/hub/prose"] == "Lists every order of a customer."
    assert shown["/hub/endless"] == truncate(TEXTS["endless"], 30, counter)
    assert await descriptions(face, query="of which have to be given") == {"/hub/prose": shown["/hub/prose"]}


class Counting:
    """Counts the characters that the real counter reads."""

    def __init__(self, real: Cl100kCounter) -> None:
        self._real, self.read = real, 0

    def count(self, text: str) -> int:
        self.read += len(text)
        return self._real.count(text)

    def encode(self, text: str) -> list[int]:
        self.read += len(text)
        return self._real.encode(text)

    def decode(self, tokens: Sequence[int]) -> bytes:
        return self._real.decode(tokens)


@requirement("FACE-48")
async def test_two_hundred_long_descriptions_are_cut_once_and_beside_the_event_loop() -> None:
    tools = [{"name": f"t{n:03}", "description": f"{n} {TEXTS['endless']}"} for n in range(200)]
    counter = Counting(shipped_token_counter())
    runtime = ProxyRuntime(StubUpstream(tools, name="hub"), RuntimeOptions(tokens=counter))
    await runtime.refresh_catalog()
    face = RegistryFace(Operations(runtime))
    counter.read = 0
    with bounded_effort(calls=10_000):  # of the event loop's thread; cutting alone takes more
        first = await descriptions(face)
    assert 0 < counter.read <= 200 * 12_000
    counter.read = 0
    assert await descriptions(face) == first
    assert await descriptions(face, query="t001 word")
    assert counter.read == 0


VERSIONS: list[dict[str, Any]] = [
    {"name": "read", "_meta": {"version": "1"}},
    {"name": "hub.read", "_meta": {"version": "2"}},
    {"name": "one"},
    {"name": "odd name", "_meta": {"version": "5"}},
]


@requirement("FACE-49")
async def test_a_name_holds_version_and_hash_only_where_the_caller_sees_several() -> None:
    face = await face_of(*VERSIONS, access=AccessPolicy([AccessRule("hub:hub.read", require=("boss",))]))
    boss = CallContext(Identity("boss", ("tools:*", "boss")), "r", "s")
    other = CallContext(Identity("other", ("tools:*",)), "r", "s")
    assert await found(face, boss) == ["/hub/odd_name", "/hub/one", "/hub/read@1", "/hub/read@2"]
    assert await found(face, other) == ["/hub/odd_name", "/hub/one", "/hub/read"]
    without = await face_of(*VERSIONS[:1], *VERSIONS[2:])
    for name in ("/hub/read", "hub/read@1", "/hub/read@2", "/hub/read@3", "/hub/read#00000000"):
        for tool, arguments in (("schema", {"name": name}), ("call", {"operation": name, "input": {}})):
            assert await face.call(tool, arguments, other) == await without.call(tool, arguments, other)
    spec = await face.call("schema", {"name": "hub/read@1"}, other)
    assert spec.structured["name"] == "/hub/read"
    assert error_of(await face.call("call", {"operation": "/hub/read"}, boss))[0] == "NOT_FOUND"
    assert not (await face.call("call", {"operation": "/hub/read@2"}, boss)).is_error


@requirement("FACE-49")
async def test_version_and_hash_may_be_left_out_or_sent_and_what_is_sent_has_to_be_right() -> None:
    face = await face_of(*VERSIONS[2:])
    hash_part = hash8("odd name", {})
    for name in ("odd_name", "odd_name@5", f"odd_name#{hash_part}", f"odd_name@5#{hash_part}"):
        result = await face.call("call", {"operation": f"/hub/{name}"}, OWNER)
        assert not result.is_error
        spec = (await face.call("schema", {"name": f"hub/{name}"}, OWNER)).structured
        assert spec["name"] == "/hub/odd_name"
    for name in ("odd_name@6", "odd_name#00000000", f"odd_name@6#{hash_part}", "one@1", "one#", "one@", "one/", "on"):
        assert error_of(await face.call("call", {"operation": f"/hub/{name}"}, OWNER))[0] == "NOT_FOUND"


@requirement("CARD-37", "FACE-50")
async def test_a_tool_that_no_card_can_hold_is_left_out_of_the_faces_of_cards_and_of_no_other() -> None:
    server, name = "q0x9z1" * 9, "".join(f"Q{i}z_x" for i in range(25))[:128]
    stub = StubUpstream(
        [{"name": name, "description": "Counts sheep."}, {"name": "plain"}], Servers().answer, name=server
    )
    fleet = MultiplexUpstream([stub])
    runtime = ProxyRuntime(fleet)
    report = await runtime.refresh_catalog()
    (tool_id,) = runtime.catalog().quarantine
    assert (report.tools, list(report.left_out)) == (2, [tool_id])
    assert report.left_out[tool_id].startswith("not browsed, only called: ")
    # Not where cards are shown.
    gateway, transparent = GatewayFace(runtime), TransparentFace(runtime)
    for asked in ({"query": "count sheep"}, {"path": f"/{server}"}):
        cards = (await gateway.call("tool_browse", asked, OWNER)).structured["cards"]
        assert tool_id not in [card["id"] for card in cards]
    assert tool_id not in [tool.name for tool in transparent.tools(OWNER)]
    # Everywhere else.
    registry, namespaced = RegistryFace(Operations(runtime)), NamespacedFace(runtime, fleet.statuses)
    assert await found(registry, query="sheep") == [f"/{server}/{name}"]
    assert not (await registry.call("call", {"operation": f"/{server}/{name}"}, OWNER)).is_error
    (listed,) = (tool.name for tool in namespaced.tools(OWNER) if tool.description == "Counts sheep.")
    assert not (await namespaced.call(listed, {}, OWNER)).is_error
    for face in (gateway, transparent):
        for wanted in (tool_id, tool_id.partition("#")[0]):
            assert not (await face.call("tool_execute", {"tool_id": wanted}, OWNER)).is_error
    assert not (await transparent.call("tool_hydrate", {"tool_id": tool_id}, OWNER)).is_error
    # A caller that may not use it finds it nowhere.
    other = CallContext(Identity("other", (f"tools:{server}:plain",)), "r", "s")
    assert await found(registry, other) == [f"/{server}/plain"]
    assert (await gateway.call("tool_execute", {"tool_id": tool_id}, other)).structured["error"] == "HYDRATE_FAILED"
    assert [tool.description for tool in namespaced.tools(other)] == [""]

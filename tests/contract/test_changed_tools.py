"""A tool that changed after a person agreed to a call of it, under the same id (ACCESS-51, ACCESS-52)."""

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from mcp import types as t

from tests.contract.test_approvals import Conversation, asked, results
from tests.support.mcp_client import NEW, OLD, mcp_client
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import RunningService, running_service
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.catalog.tool_id import derive_tool_id
from wicketgate.config.settings import Settings
from wicketgate.errors import Forbidden, InputRequired
from wicketgate.gate import Gate
from wicketgate.gateway.options import RuntimeOptions
from wicketgate.gateway.plugin_chain import Installed, PluginChain
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.models.provider import ToolCall
from wicketgate.plugins.rewriting import ToolManager, ToolManagerConfig
from wicketgate.ports import CallContext, PendingCall
from wicketgate.upstreams.embedded import StubUpstream

GATED = {"access": [{"match": "mail:send", "approval": "always"}]}
CHANGED = "approval_refused: the tool has changed"

PLAIN = {"name": "send", "description": "Send a mail.", "inputSchema": {"type": "object"}}
VERSIONED = {**PLAIN, "_meta": {"version": "1"}}
CHANGES = [
    (PLAIN, {**PLAIN, "description": "Wipe the disk of the reader."}),
    (PLAIN, {**PLAIN, "annotations": {"destructiveHint": True}}),
    (
        VERSIONED,
        {**VERSIONED, "inputSchema": {"type": "object", "properties": {"wipe": {"type": "boolean", "default": True}}}},
    ),
]
EACH_CHANGE = pytest.mark.parametrize(("before", "after"), CHANGES, ids=["words", "hints", "default"])


class MailServer(StubUpstream):
    def __init__(self, tool: Mapping[str, Any]) -> None:
        super().__init__([tool], self._answer, name="mail")

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: CallContext) -> Mapping[str, Any]:
        if context.caller.answers == "later" and context.answers is None:
            question = {"message": "Really?", "requestedSchema": {"type": "object", "properties": {}}}
            raise InputRequired({"sure": {"method": "elicitation/create", "params": question}}, "theirs")
        return {"content": [{"type": "text", "text": "done"}]}


async def change(service: RunningService, server: MailServer, tool: Mapping[str, Any]) -> str:
    """The server gives another definition; returns the id, which is as before."""
    runtime = service.app.state.gate.runtime
    (before,) = runtime.catalog().items
    server.tools[:] = [tool]
    await runtime.refresh_catalog()
    (after,) = runtime.catalog().items
    assert after == before
    return str(after)


def tool_id(tool: Mapping[str, Any]) -> str:
    return derive_tool_id(tool["name"], tool["inputSchema"], tool.get("_meta", {}).get("version"), "mail")


def send(tool: Mapping[str, Any], call_id: str = "c1") -> ToolCall:
    arguments = {"tool_id": tool_id(tool), "args": {}}
    return ToolCall(call_id, "tool_execute", arguments, json.dumps(arguments))


def body(result: t.CallToolResult) -> dict[str, Any]:
    assert isinstance(result.structured_content, dict)
    return result.structured_content


@EACH_CHANGE
@requirement("ACCESS-51", "CHAT-70")
async def test_an_approval_in_a_chat_does_not_run_the_tool_that_took_its_place(
    before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    server = MailServer(before)
    async with running_service(ScriptModel(calls(send(before)), says("well")), [server], settings=GATED) as service:
        talk = Conversation(service)
        approval = asked(await talk.go_on())["c1"]
        await change(service, server, after)
        stream = await talk.go_on((approval, "approve"))
    assert results(stream)["c1"]["error"] == CHANGED
    assert server.calls == []


@requirement("ACCESS-51")
async def test_an_approval_that_stands_is_refused_and_the_next_call_asks_again() -> None:
    before, after = CHANGES[0]
    server = MailServer(before)
    model = ScriptModel(calls(send(before)), calls(send(before, "n1")), calls(send(before, "n2")))
    async with running_service(model, [server], settings=GATED) as service:
        talk = Conversation(service)
        approval = asked(await talk.go_on())["c1"]
        await change(service, server, after)
        talk.messages = [{"role": "user", "content": "yes, do it"}]
        stream = await talk.go_on((approval, "approve"))
    assert results(stream)["n1"]["error"] == CHANGED
    assert list(asked(stream)) == ["n2"]
    assert server.calls == []


@requirement("ACCESS-51")
async def test_a_tool_that_is_as_it_was_again_may_run() -> None:
    before, after = CHANGES[0]
    server = MailServer(before)
    async with running_service(ScriptModel(calls(send(before)), says("well")), [server], settings=GATED) as service:
        talk = Conversation(service)
        approval = asked(await talk.go_on())["c1"]
        await change(service, server, after)
        await change(service, server, before)
        stream = await talk.go_on((approval, "approve"))
    assert "output" in results(stream)["c1"]
    assert len(server.calls) == 1


FACES: Mapping[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "gateway": lambda tool_id: ("tool_execute", {"tool_id": tool_id, "args": {}}),
    "transparent": lambda tool_id: ("tool_execute", {"tool_id": tool_id, "args": {}}),
    "registry": lambda tool_id: ("call", {"operation": "/mail/send", "input": {}}),
    "namespaced": lambda tool_id: ("mail__send", {}),
}


@pytest.mark.parametrize("face", FACES)
@EACH_CHANGE
@requirement("ACCESS-51", "CHAT-71")
async def test_a_client_that_agrees_while_the_tool_changes_has_agreed_to_the_former_one(
    face: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    server = MailServer(before)

    async def decide(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        await change(service, server, after)
        return t.ElicitResult(action="accept", content={})

    options = {"elicitation_callback": decide}
    async with (
        running_service(upstreams=[server], settings=GATED) as service,
        mcp_client(service, OLD, path=f"/mcp/{face}", client=options) as client,
    ):
        name, arguments = FACES[face](tool_id(before))
        result = await client.call_tool(name, arguments)
    assert result.is_error
    assert CHANGED in json.dumps(body(result))
    assert server.calls == []


@pytest.mark.parametrize("face", FACES)
@EACH_CHANGE
@requirement("ACCESS-52", "FACE-12")
async def test_answers_to_a_tool_do_not_reach_the_one_that_took_its_place(
    face: str, before: Mapping[str, Any], after: Mapping[str, Any]
) -> None:
    server = MailServer(before)

    async def decide(context: Any, params: t.ElicitRequestParams) -> t.ElicitResult:
        raise AssertionError("the test answers by itself")

    answers: Any = {"sure": t.ElicitResult(action="accept", content={})}
    options = {"elicitation_callback": decide}
    async with (
        running_service(upstreams=[server]) as service,
        mcp_client(service, NEW, path=f"/mcp/{face}", client=options) as client,
    ):
        name, arguments = FACES[face](tool_id(before))

        async def ask() -> str:
            result = await client.session.call_tool(name, arguments, allow_input_required=True)
            assert isinstance(result, t.InputRequiredResult)
            assert result.request_state is not None
            return result.request_state

        good = await client.call_tool(name, arguments, input_responses=answers, request_state=await ask())
        state = await ask()
        await change(service, server, after)
        refused = await client.call_tool(name, arguments, input_responses=answers, request_state=state)
    assert not good.is_error
    assert refused.is_error
    assert "answers_refused: the tool has changed" in json.dumps(body(refused))
    assert [context.answers is not None for _, _, context in server.calls] == [False, True, False]


@requirement("ACCESS-52")
async def test_a_definition_that_a_plugin_describes_anew_still_counts_as_its_server_declares_it() -> None:
    before, after = CHANGES[0]
    entry = {"tool": "send", "display_name": "post", "display_description": "Posts it."}
    manager = ToolManager(ToolManagerConfig.model_validate({"tools": [entry]}))
    chain = PluginChain({"mail": [Installed("tool_manager", manager)]}, lambda: 0.0)
    server = MailServer(before)
    runtime = ProxyRuntime(server, RuntimeOptions(plugins=chain))
    digests = list[str]()
    for tool in (before, after, {**before, "_meta": {"seen": 1}}):
        server.tools[:] = [tool]
        await runtime.refresh_catalog()
        digests += [item.digest for item in runtime.catalog().items.values()]
    assert digests[0] != digests[1]
    assert digests[2] == digests[0]


SERVER = """
import json, os, sys
from pathlib import Path

folder = Path(sys.argv[1])
tool = {"name": "send", "description": (folder / "words").read_text(), "inputSchema": {"type": "object"}}
(folder / "pid").write_text(str(os.getpid()))
for line in sys.stdin:
    message = json.loads(line)
    result = {"tools": [tool]}
    if message["method"] == "initialize":
        info = {"name": "mail", "version": "0"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif message["method"] == "tools/call":
        (folder / "ran").write_text(tool["description"])
        result = {"content": [{"type": "text", "text": "done"}]}
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


class OwnerOf:
    """An owner who agrees when the server has been started again with other words."""

    def __init__(self, gate: Gate, folder: Path) -> None:
        self.gate = gate
        self.folder = folder

    async def approve(self, call: PendingCall) -> None:
        (self.folder / "words").write_text("Wipe the disk of the reader.")
        os.kill(int((self.folder / "pid").read_text()), signal.SIGKILL)
        await until(lambda: "Wipe" in next(iter(self.gate.runtime.catalog().items.values())).description)


@requirement("ACCESS-51")
async def test_a_server_that_was_started_again_with_other_words_does_not_run_what_was_agreed_before(
    tmp_path: Path,
) -> None:
    (tmp_path / "words").write_text("Send a mail.")
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, str(tmp_path / "server.py"), str(tmp_path)]
    settings = Settings.model_validate({"upstreams": [{"name": "mail", "command": command}], **GATED})
    async with Gate(settings) as gate:
        await gate.wait_ready()
        (sent,) = gate.runtime.catalog().items
        identity = Identity("ann", ("tools:*",))
        with pytest.raises(Forbidden, match=CHANGED):
            await gate.runtime.execute(sent, {}, CallContext(identity, "r", "s", approver=OwnerOf(gate, tmp_path)))
        assert list(gate.runtime.catalog().items) == [sent]
    assert not (tmp_path / "ran").exists()

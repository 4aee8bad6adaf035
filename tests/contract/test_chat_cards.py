"""The order of the cards that the engine's model is given."""

import json
from typing import Any

import pytest

from tests.contract.test_tool_calls import IDS
from tests.support.requirement import requirement
from tests.support.script import ScriptModel, calls, says
from tests.support.service import FileServer, chat_body, running_service
from wicketgate.models.provider import ToolCall

MARKER = "__cache_breakpoint__"


@pytest.mark.parametrize("configured", [None, True])
@requirement("BROWSE-25", "BROWSE-29")
async def test_the_configuration_alone_decides_in_the_engine(configured: bool | None) -> None:
    asked: list[dict[str, Any]] = [{"query": "read a file", "top_k": 1}, {"path": "/files"}]
    browses = [
        calls(ToolCall(f"c{number}", "tool_browse", arguments, json.dumps(arguments)))
        for number, arguments in enumerate(asked)
    ]
    settings = {} if configured is None else {"mcp": {"cache_stable": configured}}
    async with running_service(ScriptModel(*browses, says("ok")), [FileServer()], settings=settings) as service:
        body = chat_body()
        body["metadata"] |= {"conversation_id": "one", "cache_stable": not configured}
        stream = await service.chat(body)
    answers = [json.loads(data["output"]) for event, data in stream if event == "tool-result"]
    first, second = ([card["id"] for card in answer["cards"]] for answer in answers)
    assert first == [IDS["read_file"]]
    others = sorted(tool_id for tool_id in IDS.values() if tool_id != IDS["read_file"])
    assert second == ([IDS["read_file"], MARKER, *others] if configured else sorted(IDS.values()))

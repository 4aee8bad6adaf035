"""The length of a call's way: frames of ours between a face and an upstream."""

import sys
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import wicketgate
from tests.support.door import ERAS, Door
from tests.support.service import running_service
from wicketgate.access.identity import Identity
from wicketgate.config.settings import Settings
from wicketgate.gate import Gate
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

ROOT = f"{Path(wicketgate.__file__).parent}/"
CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "s")


class Counting(StubUpstream):
    """Notes the frames of ours that wait for its answer, the outermost last."""

    def __init__(self) -> None:
        super().__init__([{"name": "get", "inputSchema": {"type": "object"}}], name="stub")
        self.frames: list[str] = []

    async def call_tool(
        self, name: str, arguments: Mapping[str, Any], context: CallContext, timeout_s: float
    ) -> Mapping[str, Any]:
        # A coroutine that runs has those that await it as its callers.
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(ROOT):
                self.frames.append(frame.f_code.co_qualname)
            frame = frame.f_back
        return {"content": []}


@pytest.mark.parametrize("name", ["gateway", "transparent", "registry", "namespaced"])
async def test_a_call_through_a_gate_crosses_few_frames_up_to_the_upstream(name: str) -> None:
    upstream = Counting()
    async with Gate(Settings(), upstreams=[upstream]) as gate:
        await gate.wait_ready()
        (tool_id,) = gate.runtime.catalog().items
        match name:
            case "registry":
                tool, args = "call", {"operation": "stub/get"}
            case "namespaced":
                tool, args = "stub__get", {}
            case _:
                tool, args = "tool_execute", {"tool_id": tool_id}
        result = await gate.faces[name].surface.call(tool, args, CONTEXT)
    assert not result.is_error
    assert any(frame.startswith("Member.") for frame in upstream.frames)
    assert len(upstream.frames) <= 8, upstream.frames


@ERAS
async def test_a_namespaced_call_through_the_door_crosses_few_frames_of_the_library(era: str) -> None:
    upstream = Counting()
    async with running_service(upstreams=[upstream]) as service:
        await (await Door(service, era).open()).call("stub__get")
    assert upstream.frames[-1] == "DirectDoor.answer"
    assert len(upstream.frames) <= 10, upstream.frames

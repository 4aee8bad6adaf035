"""Every type of content, from a real MCP server through the SDK into an envelope and back to its bytes (EXEC-23)."""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import pytest

from tests.support import content_server as content
from tests.support.requirement import requirement
from tests.support.supervised import connected
from tests.support.warm_server import warm
from wicketgate.access.identity import Identity
from wicketgate.errors import UpstreamError
from wicketgate.gateway.archive import Execution
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.results.envelope import ResultEnvelope
from wicketgate.results.view import View
from wicketgate.upstreams.mcp.stdio import stdio_transport
from wicketgate.upstreams.mcp.upstream import McpServerUpstream

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "session")
BOUND_S = 20.0


class Connected:
    """A runtime over one content server."""

    def __init__(self, runtime: ProxyRuntime) -> None:
        self.runtime = runtime

    def tool_id(self, name: str) -> str:
        (found,) = (item.id for item in self.runtime.catalog().items.values() if item.upstream_name == name)
        return found

    async def call(self, name: str, **args: Any) -> ResultEnvelope:
        execution = await self.runtime.execute(self.tool_id(name), args, CONTEXT)
        assert isinstance(execution, Execution)
        envelope = execution.envelope
        # Whatever came, it can be sent on.
        assert json.dumps(envelope.as_dict(), ensure_ascii=False).encode()
        return envelope

    async def view(self, handle: str, **selector: Any) -> View:
        return await self.runtime.view(handle, selector, CONTEXT)

    async def whole(self, handle: str) -> str:
        """All pages of ``head``."""
        pages = [await self.view(handle, type="head", chars=20_000)]
        while pages[-1].next is not None:
            pages.append(await self.view(handle, **pages[-1].next))
        return "".join(page.content for page in pages)


@asynccontextmanager
async def content_runtime(*arguments: str) -> AsyncIterator[Connected]:
    command = warm("tests.support.content_server", *arguments)
    connect = partial(stdio_transport, "content", command, {}, None)
    upstream = McpServerUpstream("content", connect, connect_timeout_s=15, jitter=random.random)
    runtime = ProxyRuntime(upstream)
    async with connected(upstream):
        await runtime.refresh_catalog()
        yield Connected(runtime)


def handles(envelope: ResultEnvelope) -> dict[str, str]:
    return {ref.handle.partition(":")[0]: ref.handle for ref in envelope.artifacts}


@requirement("CARD-27", "EXEC-18", "EXEC-19", "EXEC-20", "EXEC-22", "EXEC-23")
async def test_text_errors_notes_and_nothing_at_all_come_through_a_real_session() -> None:
    async with content_runtime() as server:
        text = await server.call("text")
        assert (text.status, text.summary) == ("ok", content.TEXT.text)
        assert text.artifacts == (), "what is shown whole is not kept"
        failed = await server.call("failed")
        assert (failed.status, failed.summary) == ("error", "no such file")
        empty = await server.call("empty")
        assert (empty.status, empty.summary, empty.artifacts) == ("ok", "(no content)", ())
        noted = await server.call("annotated")
        (note,) = noted.provenance["content_annotations"]
        assert (note["part_index"], note["audience"], note["priority"]) == (1, ["user"], 0.5)
        structured = await server.call("structured")
        assert structured.facts == ("count: 42", "status: done")
        assert structured.structured_content == {"count": 42, "status": "done"}


@requirement("EXEC-21", "EXEC-23", "EXEC-30")
async def test_no_byte_of_images_sounds_and_resources_is_lost_through_a_real_session() -> None:
    async with content_runtime() as server:
        for name, data, media_type in (("image", content.PNG, "image/png"), ("audio", content.WAV, "audio/wav")):
            envelope = await server.call(name)
            page = await server.view(handles(envelope)[name], type="head")
            assert page.media is not None
            assert (page.media.kind, page.media.media_type, page.media.data) == (name, media_type, data)
        blob = await server.call("blob_resource")
        assert bytes.fromhex(await server.whole(handles(blob)["resource"])) == content.BLOB
        text = await server.call("text_resource")
        assert (text.summary, text.artifacts) == ("# A heading", ())
        link = await server.call("link")
        assert link.facts == ("link: q3 | file:///reports/q3.pdf | application/pdf | The third quarter.",)


@requirement("EXEC-23", "EXEC-28")
async def test_many_parts_are_all_reachable_and_the_envelope_stays_small() -> None:
    async with content_runtime() as server:
        envelope = await server.call("several")
        assert envelope.status == "ok"
        assert "parts: 7" in envelope.facts
        assert envelope.structured_content == {"parts": 7}
        kinds = [ref.handle.partition(":")[0] for ref in envelope.artifacts]
        assert kinds == ["image", "audio", "resource"], "the others are shown"
        assert all([(await server.view(ref.handle, type="head")).total for ref in envelope.artifacts])


NO_OBJECTS: list[Any] = [None, "text", 5, []]

ODD_OBJECTS: list[Any] = [
    {},
    {"content": None},
    {"content": "text"},
    {"content": [None]},
    {"content": [{"type": "text", "text": None}]},
    {"content": [{"type": "hologram", "data": "x"}]},
    {"content": [{"type": "image", "data": "!!", "mimeType": 5}]},
    {"content": [], "isError": "perhaps"},
]


@requirement("EXEC-24")
async def test_an_answer_that_is_no_object_is_an_upstream_error_at_once_and_the_session_goes_on() -> None:
    async with content_runtime("raw") as server:
        for answer in NO_OBJECTS:
            with anyio.fail_after(5), pytest.raises(UpstreamError, match="not a valid MCP result"):
                await server.call("say", answer=answer)
        assert (await server.call("say", answer={"content": []})).status == "ok"


@requirement("EXEC-24")
async def test_an_answer_of_an_odd_shape_is_an_envelope_and_nothing_of_it_is_lost() -> None:
    async with content_runtime("raw") as server:
        statuses = [(await server.call("say", answer=answer)).status for answer in ODD_OBJECTS]
    assert statuses == ["ok", *["partial"] * 6, "error"]

"""Traces of real processes, as a collector receives them (OPS-540 to OPS-543)."""

import asyncio
import importlib
import json
import pkgutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.e2e.test_keyed_after_a_kill import BOUND_S, TOOL, configuration
from tests.e2e.test_taken_over import READY, HoldingModel, write_config
from tests.support.collector import Collector, SentSpan
from tests.support.model_server import ModelServer, text_turn, tool_turn
from tests.support.process import outcome, program
from tests.support.requirement import requirement
from tests.support.service import KEY, chat_body, frames
from tests.support.until import until

TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{CALLER}-01"
SECRET_WORDS = "the plans of the merger"
CHARGES = ("c1", "tool_execute", {"tool_id": TOOL, "args": {"number": 7}})


def registry() -> frozenset[str]:
    """Every attribute of the published semantic conventions."""

    def names() -> Iterator[str]:
        for package in ("opentelemetry.semconv.attributes", "opentelemetry.semconv._incubating.attributes"):
            folder = importlib.import_module(package)
            for module in pkgutil.iter_modules(folder.__path__):
                values = vars(importlib.import_module(f"{package}.{module.name}")).values()
                yield from (value for value in values if isinstance(value, str))

    return frozenset(names())


async def post_chat(url: str, text: str, **headers: str) -> str:
    headers = {"Authorization": f"Bearer {KEY}", "traceparent": TRACEPARENT, **headers}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=BOUND_S, trust_env=False) as http:
        return (await http.post("/engine/chat", json=chat_body(text))).text


def path_to(span: SentSpan, spans: dict[str, SentSpan]) -> list[str]:
    """The names from the root to *span*."""
    names = [span.name]
    while (above := spans.get(span.parent)) is not None:
        span, names = above, [above.name, *names]
    assert span.parent == CALLER
    return names


@requirement("OPS-540", "OPS-541")
async def test_one_chat_is_one_trace_from_the_request_to_the_tool_server(tmp_path: Path) -> None:
    async with Collector() as collector, ModelServer(tool_turn(CHARGES), text_turn("charged")) as model:
        config = tmp_path / "wicketgate.yaml"
        config.write_text(yaml.safe_dump(configuration(tmp_path, model.base_url)))
        environ = collector.variables()
        async with program("app", "serve", "--config", str(config), "--port", "0", env=environ) as gate:
            url = (await gate.wait_for(READY)).group(1)
            events = frames(await post_chat(url, SECRET_WORDS))
            assert [name for name, _ in events][-1] == "done"
            # What has ended is sent at the stop at the latest.
            assert await gate.stop() == 0
    spans = {span.id: span for span in collector.of(TRACE)}
    http, chat = "POST /engine/chat", "invoke_agent wicketgate"
    assert sorted(path_to(span, spans) for span in spans.values()) == [
        [http],
        [http, chat],
        [http, chat, "chat m"],
        [http, chat, "chat m"],
        [http, chat, f"execute_tool {TOOL}"],
        [http, chat, f"execute_tool {TOOL}", "tools/call charge"],
    ]
    assert not any(span.failed for span in spans.values())
    assert {span.kind for span in spans.values()} == {"SERVER", "INTERNAL", "CLIENT"}
    used = {span.name: span.attributes for span in spans.values()}
    assert used[chat]["gen_ai.usage.input_tokens"] == 20
    assert used["chat m"]["gen_ai.usage.output_tokens"] == 5
    assert used[http]["http.response.status_code"] == 200
    # The model's server gets the span of its call as the parent of its own.
    asked = [request.headers["traceparent"] for request in model.requests]
    called = [span.id for span in spans.values() if span.name == "chat m"]
    assert sorted(asked) == sorted(f"00-{TRACE}-{each}-01" for each in called)
    assert {name for span in spans.values() for name in span.attributes} <= registry()
    assert not any(SECRET_WORDS.encode() in body or b"charged" in body for body in collector.raw)


@requirement("OPS-544")
async def test_content_is_in_spans_on_request_alone_and_secrets_are_masked_in_it(tmp_path: Path) -> None:
    turns = tool_turn(CHARGES, text="so be it"), text_turn("charged"), text_turn("long")
    async with Collector() as collector, ModelServer(*turns) as model:
        config = tmp_path / "wicketgate.yaml"
        config.write_text(yaml.safe_dump(configuration(tmp_path, model.base_url)))
        environ = {**collector.variables(), "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "true"}
        async with program("app", "serve", "--config", str(config), "--port", "0", env=environ) as gate:
            url = (await gate.wait_for(READY)).group(1)
            await post_chat(url, f"{SECRET_WORDS} password={KEY}")
            await post_chat(url, "x" * 20_000)
            assert await gate.stop() == 0
    said: dict[str, list[Any]] = {}
    for each in (span.attributes for span in collector.of(TRACE) if span.name == "chat m"):
        (answer,) = json.loads(each["gen_ai.output.messages"])
        said[answer["parts"][0]["content"]] = [*json.loads(each["gen_ai.input.messages"]), answer]
    first, second, long = said["so be it"], said["charged"], said["long"]
    assert [message["role"] for message in first] == ["user", "assistant"]
    assert first[0]["parts"][0]["content"] == f"{SECRET_WORDS} [redacted]"
    assert first[1]["parts"][1]["arguments"] == {"tool_id": TOOL, "args": {"number": 7}}
    assert [message["role"] for message in second] == ["user", "assistant", "tool", "assistant"]
    # The request alone is longer than what a span takes.
    assert [message["role"] for message in long] == ["assistant"]
    (call,) = (span.attributes for span in collector.of(TRACE) if span.name == f"execute_tool {TOOL}")
    assert json.loads(call["gen_ai.tool.call.arguments"]) == {"number": 7}
    assert "charged 7" in call["gen_ai.tool.call.result"]
    assert {name for span in collector.spans for name in span.attributes} <= registry()
    assert not any(KEY.encode() in body for body in collector.raw)


@requirement("OPS-540")
async def test_a_chat_that_another_replica_goes_on_with_stays_in_its_trace(tmp_path: Path) -> None:
    async with Collector() as collector, HoldingModel() as model, asyncio.timeout(2 * BOUND_S):
        serve = ("app", "serve", "--config", write_config(tmp_path, model), "--port", "0")
        async with (
            program(*serve, env=collector.variables("one")) as one,
            program(*serve, env=collector.variables("other")) as other,
        ):
            first, second = [(await each.wait_for(READY)).group(1) for each in (one, other)]
            key = {"Idempotency-Key": "k1", "X-On-Disconnect": "continue"}
            reading = asyncio.create_task(post_chat(first, "charge 1 2", **key))
            await until(lambda: model.held["charge 1 2"], bound_s=BOUND_S)
            # The first turn and its tools have ended, and what has ended is with the collector.
            await until(lambda: len([s for s in collector.of(TRACE) if s.kind != "SERVER"]) >= 5, bound_s=BOUND_S)
            one.process.send_signal(signal.SIGKILL)
            await asyncio.gather(reading, return_exceptions=True)
            model.released.set()
            assert "event: done" in await post_chat(second, "charge 1 2", **key)
            assert await other.stop() == 0
    spans = collector.of(TRACE)
    by_process = {process: [s.name for s in spans if s.process == process] for process in ("one", "other")}
    assert by_process["one"].count("tools/call charge") == 2
    assert "invoke_agent wicketgate" in by_process["other"]
    assert "chat m" in by_process["other"]
    assert "tools/call charge" not in by_process["other"]


@requirement("OPS-540")
async def test_the_spans_of_a_chat_end_when_its_client_leaves(tmp_path: Path) -> None:
    async with Collector() as collector, HoldingModel() as model:
        serve = ("app", "serve", "--config", write_config(tmp_path, model), "--port", "0")
        async with program(*serve, env=collector.variables()) as gate:
            url = (await gate.wait_for(READY)).group(1)
            reading = asyncio.create_task(post_chat(url, "wait"))
            await until(lambda: model.held["wait"], bound_s=BOUND_S)
            reading.cancel()
            await until(lambda: len(collector.of(TRACE)) >= 3, bound_s=BOUND_S)
            spans = {span.name: span for span in collector.of(TRACE)}
            assert spans.keys() == {"POST /engine/chat", "invoke_agent wicketgate", "chat m"}
            assert not any(span.failed for span in spans.values())


@requirement("OPS-542")
async def test_a_collector_that_is_down_costs_only_a_counter(tmp_path: Path) -> None:
    async with Collector() as collector, ModelServer(*[text_turn("hello") for _ in range(3)]) as model:
        environ = collector.variables() | {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        environ["OTEL_EXPORTER_OTLP_TIMEOUT"] = "1"
        config, sections = tmp_path / "wicketgate.yaml", configuration(tmp_path, model.base_url)
        sections["auth"]["keys"][0]["permissions"] = ["tools:*", "ops:read"]
        config.write_text(yaml.safe_dump(sections))
        async with program("app", "serve", "--config", str(config), "--port", "0", env=environ) as gate:
            url = (await gate.wait_for(READY)).group(1)
            for _ in range(3):
                assert "event: done" in await post_chat(url, "hi")

            async def failed() -> bool:
                async with httpx.AsyncClient(trust_env=False) as http:
                    text = (await http.get(f"{url}/metrics", headers={"Authorization": f"Bearer {KEY}"})).text
                (line,) = [each for each in text.splitlines() if 'spans_total{state="failed"}' in each]
                return float(line.split()[1]) >= 3

            await until(failed, bound_s=BOUND_S)
            assert await gate.stop() == 0
        lines = [line for line in gate.logs() if line["component"].startswith(("traces", "opentelemetry"))]
        assert [line["level"] for line in lines] == ["warning"]
        assert not collector.spans


@requirement("OPS-543")
@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER must be otlp or none"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "must be http/protobuf"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_TRACES_SAMPLER": "nope"}, "OTEL_TRACES_SAMPLER must be one of"),
        ({"OTEL_TRACES_EXPORTER": "otlp", "OTEL_BSP_MAX_QUEUE_SIZE": "1"}, "OTEL_* variables cannot be used"),
    ],
)
async def test_variables_that_ask_for_what_is_not_there_stop_the_start(
    tmp_path: Path, variables: dict[str, str], named: str
) -> None:
    config = tmp_path / "wicketgate.yaml"
    config.write_text("server: {port: 0}\n")
    code, stdout, stderr = await outcome("app", "serve", "--config", str(config), "--port", "0", env=variables)
    assert code != 0
    assert named in stdout + stderr
    assert "Traceback" not in stdout + stderr


def made(**variables: str) -> Any:
    from app.telemetry import traces_wanted

    return traces_wanted(variables)


@requirement("OPS-543")
def test_traces_are_off_unless_a_collector_is_named() -> None:
    endpoint = "http://127.0.0.1:4318"
    assert not made()
    assert not made(OTEL_SERVICE_NAME="x")
    assert made(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint)
    assert made(OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=endpoint)
    assert made(OTEL_TRACES_EXPORTER="otlp")
    assert not made(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_SDK_DISABLED="true")
    assert not made(OTEL_EXPORTER_OTLP_ENDPOINT=endpoint, OTEL_TRACES_EXPORTER="none")

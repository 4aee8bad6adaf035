"""What chats and calls cost, over HTTP: in ``done``, in the report, against budgets (OPS-550 to OPS-556)."""

import csv
import io
import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.contract.test_providers import READ_FILE, TURNS, model, service_over
from tests.models.streams import EXPECTED, stream_bytes
from tests.support.anthropic_replies import begin, end, text_block
from tests.support.model_server import HOLD, ModelServer, Reply, chunk, text_turn
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OPERATOR_KEY, FileServer, RunningService, chat_body, running_service
from tests.support.until import until
from wicketgate.gateway.spending import COST_KEY

PRICES = {"input": 3, "output": 15, "cached_input": 0.3, "cache_write": 3.75}
OPERATOR = {"Authorization": f"Bearer {OPERATOR_KEY}"}


async def report(service: RunningService, by: str = "actor") -> dict[str, list[Any]]:
    """The rows of the report by their names."""
    answer = await service.http.get(f"/console/api/spending?by={by}", headers=OPERATOR)
    assert answer.status_code == 200, answer.text
    return {row.pop("name"): list(row.values()) for row in answer.json()["rows"]}


@requirement("OPS-550", "OPS-551", "OPS-552", "OPS-555")
@pytest.mark.parametrize("provider", TURNS)
async def test_a_chat_costs_what_its_turns_and_tools_cost_and_the_report_agrees(provider: str) -> None:
    tools, text = TURNS[provider]
    call = {"tool_id": READ_FILE, "args": {"path": "a.txt"}}
    script = [tools(("c1", "tool_execute", call), usage=(20, 6)), text("It is short.", usage=(30, 7))]
    settings = {
        "model": {**_model_settings(provider), "prices": PRICES},
        "spending": {"tools": [{"match": "files:*", "per_call": 0.005}]},
    }
    async with ModelServer(*script) as server:
        settings["model"]["base_url"] = server.base_url
        async with running_service(upstreams=[FileServer()], settings=settings, configured_model=True) as service:
            done = (await service.chat())[-1][1]
            assert done["usage"]["cost"] == (50 * 3 + 13 * 15) / 10**6 + 0.005 == 0.005345
            assert await report(service) == {"owner_1": [2, 1, 50, 0, 13, 0.005345]}
            assert await report(service, "key") == {"test": [2, 1, 50, 0, 13, 0.005345]}
            assert await report(service, "model") == {"m": [2, 0, 50, 0, 13, 0.000345]}
            assert await report(service, "tool") == {READ_FILE: [0, 1, 0, 0, 0, 0.005]}
            assert 'wicketgate_model_cost_total{model="m"} 0.000345\n' in await service.metrics()


def _model_settings(provider: str) -> dict[str, Any]:
    return {"provider": provider, "model": "m", "api_key": "key-0123456789"}


@requirement("OPS-550")
async def test_tokens_of_the_prompt_cache_have_their_own_prices() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 600}}
    cached = chunk(usage={"prompt_tokens": 1_000, "completion_tokens": 10, **details})
    openai = Reply([chunk({"content": "x"}), chunk({}, "stop"), cached, b"data: [DONE]\n\n"])
    begun = begin(100, cache_read_input_tokens=600, cache_creation_input_tokens=300)
    anthropic = Reply([begun, *text_block(0, "x"), *end("end_turn", 10)])
    replies = {
        "openai-chat": (openai, (400 * 3 + 600 * 0.3 + 10 * 15) / 10**6),
        "anthropic-messages": (anthropic, (100 * 3 + 600 * 0.3 + 300 * 3.75 + 10 * 15) / 10**6),
    }
    for provider, (reply, cost) in replies.items():
        async with ModelServer(reply) as server:
            settings = {"model": {**model(server, provider), "prices": PRICES}}
            async with running_service(settings=settings, configured_model=True) as service:
                assert (await service.chat())[-1][1]["usage"]["cost"] == pytest.approx(cost, abs=1e-12)
                assert await report(service) == {"owner_1": [1, 0, 1_000, 600, 10, pytest.approx(cost, abs=1e-12)]}


@requirement("OPS-550", "OPS-555")
async def test_the_report_agrees_with_the_recorded_streams_to_the_token() -> None:
    plain = [name for name, expected in EXPECTED.items() if not expected.get("given") and not expected["calls"]]
    ended = [name for name in plain if EXPECTED[name]["finish"] is not None]
    counted = [usage for name in ended if (usage := EXPECTED[name]["usage"])]
    assert counted
    prompt, completion = (sum(each[kind] for each in counted) for kind in ("prompt_tokens", "completion_tokens"))
    async with ModelServer(*(Reply([stream_bytes(name)]) for name in ended)) as server:
        settings = {"model": {**model(server, attempts=1), "prices": PRICES}}
        async with running_service(settings=settings, configured_model=True) as service:
            for _ in ended:
                await service.chat()
            cost = (prompt * 3 + completion * 15) / 10**6
            assert await report(service) == {"owner_1": [len(counted), 0, prompt, 0, completion, cost]}


@requirement("OPS-550")
async def test_without_prices_done_has_no_cost_and_tokens_are_counted_all_the_same() -> None:
    async with ModelServer(text_turn("x")) as server, service_over(server) as service:
        assert (await service.chat())[-1][1]["usage"] == {"prompt_tokens": 10, "completion_tokens": 5}
        assert await report(service) == {"owner_1": [1, 0, 10, 0, 5, 0.0]}


class PaidServer(FileServer):
    """Its results say what they cost."""

    async def _answer(self, name: str, arguments: Mapping[str, Any], context: Any) -> Mapping[str, Any]:
        return {**await super()._answer(name, arguments, context), "_meta": {COST_KEY: 1.5}}


@requirement("OPS-551")
async def test_calls_of_mcp_clients_and_programs_cost_what_their_tools_report() -> None:
    settings = {"spending": {"tools": [{"match": "files:read_file", "per_call": 9, "most_reported": 2}]}}
    async with running_service(upstreams=[PaidServer()], settings=settings) as service:
        body = {"name": "/files/read_file", "input": {"path": "a"}}
        assert (await service.http.post("/operations/call", json=body)).status_code == 200
        arguments = {"name": "tool_execute", "arguments": {"tool_id": "files:read_file", "args": {"path": "a"}}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": arguments}
        headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
        assert (await service.http.post("/mcp", json=message, headers=headers)).status_code == 200
        refused = {**arguments, "arguments": {"tool_id": "files:read_file", "args": {}}}
        await service.http.post("/mcp", json={**message, "params": refused}, headers=headers)
        assert await report(service, "tool") == {READ_FILE: [0, 2, 0, 0, 0, 3.0]}


BUDGET: dict[str, Any] = {"spending": {"budgets": [{"actor": "owner_1", "per_month": 0.0003}]}}


@requirement("OPS-553", "OPS-554")
async def test_a_chat_over_its_budget_is_refused_before_the_model_is_asked() -> None:
    turns = [text_turn("x", usage=(40, 10)) for _ in range(3)]
    async with ModelServer(*turns) as server:
        settings = {**BUDGET, "model": {**model(server), "prices": PRICES}}
        async with running_service(settings=settings, configured_model=True) as service:
            # 0.00027 each: the second begins with 90 % spent, and its end is not cut off.
            first = await service.http.post("/engine/chat", json=chat_body())
            assert "wicketgate-budget" not in first.headers
            second = await service.http.post("/engine/chat", json=chat_body(), headers={"Idempotency-Key": "k2"})
            assert second.headers["wicketgate-budget"].endswith("90% of 0.0003")
            refused = await service.http.post("/engine/chat", json=chat_body(), headers={"Idempotency-Key": "k3"})
            assert (refused.status_code, set(refused.json())) == (429, {"code", "message"})
            assert refused.json()["code"] == "rate_limited"
            assert "budget of actor:owner_1" in refused.json()["message"]
            assert 0 < int(refused.headers["retry-after"]) <= 31 * 86_400
            assert len(server.requests) == 2
            # What was paid for can be read again.
            again = await service.http.post("/engine/chat", json=chat_body(), headers={"Idempotency-Key": "k2"})
            assert again.text == second.text
            metrics = await service.metrics()
        for outcome, checks in {"within": 1, "warned": 1, "refused": 1}.items():
            assert f'wicketgate_budget_checks_total{{outcome="{outcome}"}} {checks}.0' in metrics


@requirement("OPS-550", "OPS-553")
async def test_who_leaves_early_spends_all_the_same() -> None:
    held = Reply([chunk({"content": "x" * 400}), HOLD])
    async with ModelServer(held) as server:
        settings = {**BUDGET, "model": {**model(server), "prices": PRICES}}
        async with running_service(settings=settings, configured_model=True) as service:
            async with service.http.stream("POST", "/engine/chat", json=chat_body("y" * 400)) as answer:
                await anext(answer.aiter_bytes())
            await until(lambda: report(service), bool, bound_s=BOUND_S)
            turns, _, prompt, _, completion, cost = (await report(service))["owner_1"]
            assert (turns, prompt, completion, cost) == (1, 100, 100, (100 * 3 + 100 * 15) / 10**6)


@requirement("OPS-553")
async def test_budgets_follow_a_reload() -> None:
    async with ModelServer(*[text_turn("x")] * 3) as server:
        settings = {"model": {**model(server), "prices": PRICES}}
        async with running_service(settings=settings, configured_model=True) as service:
            gate = service.app.state.gate
            await service.chat()
            nothing = gate.settings.model_copy(
                update={
                    "spending": type(gate.settings.spending).model_validate({"budgets": [{"actor": "*", "per_day": 0}]})
                }
            )
            assert (await gate.apply(nothing)).waiting == ()
            assert (await service.http.post("/engine/chat", json=chat_body())).status_code == 429


@requirement("OPS-555")
@pytest.mark.parametrize(
    ("query", "status", "told"),
    [
        ("by=day&since=2026-01-31", 200, "rows"),
        ("by=owner", 400, "actor, key, model, tool, day"),
        ("since=yesterday", 400, "a day"),
        ("since=2026-1-1%00", 400, "a day"),
        ("since=9999-12-31", 200, "rows"),
    ],
)
async def test_the_report_refuses_what_it_cannot_read(query: str, status: int, told: str) -> None:
    async with running_service() as service:
        answer = await service.http.get(f"/console/api/spending?{query}", headers=OPERATOR)
        assert answer.status_code == status
        assert told in answer.text
        assert (await service.http.get(f"/console/api/spending?{query}")).status_code == 403


@requirement("OPS-555")
async def test_days_come_in_their_order_whatever_they_cost() -> None:
    async with running_service() as service:
        gate = service.app.state.gate
        days = [gate.spending.days_ago(number) for number in (1, 2, 3)]
        for day, cost in zip(days, (5, 1, 9), strict=True):
            gate.ledger.add(day, "ann", ("tool", "shop:get_order", "k"), (1, 0, 0, 0, cost), ())
        answer = await service.http.get("/console/api/spending?by=day", headers=OPERATOR)
    assert [row["name"] for row in answer.json()["rows"]] == days


async def wicketgate(service: RunningService, *args: str, key: str = OPERATOR_KEY) -> tuple[int, str, str]:
    async with program("app", "report", "--url", service.url, *args, env={"WG_KEY": key}) as running:
        return await running.ended(bound_s=BOUND_S), running.stdout, running.stderr


@requirement("OPS-555")
async def test_the_report_in_a_terminal() -> None:
    async with ModelServer(text_turn("x", usage=(1_000, 200))) as server:
        settings = {"model": {**model(server), "model": "=m", "prices": PRICES}}
        async with running_service(settings=settings, configured_model=True) as service:
            code, shown, told = await wicketgate(service)
            assert (code, shown, "Nothing was used" in told) == (0, "", True)
            await service.chat()
            code, shown, told = await wicketgate(service, "--by", "model")
            assert code == 0
            assert [line.split() for line in shown.splitlines() if line.strip()][-1] == [
                "=m",
                "1",
                "0",
                "1,000",
                "0",
                "200",
                "0.0060",
            ]
            assert told.startswith("0.0060 in all since 20")
            code, document, _ = await wicketgate(service, "--by", "model", "--json")
            numbers = {"turns": 1, "calls": 0, "prompt_tokens": 1_000, "cached_tokens": 0, "completion_tokens": 200}
            assert json.loads(document)["rows"] == [{"name": "=m", **numbers, "cost": 0.006}]
            code, table, _ = await wicketgate(service, "--by", "model", "--csv")
            head = ["model", "turns", "calls", "prompt_tokens", "cached_tokens", "completion_tokens", "cost"]
            assert list(csv.reader(io.StringIO(table))) == [head, ["'=m", "1", "0", "1000", "0", "200", "0.006"]]
            code, shown, told = await wicketgate(service, key=KEY)
            assert (code, shown, "ops:read" in told) == (1, "", True)

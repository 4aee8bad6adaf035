"""The audit over HTTP: filters and a cursor over the memory, older records from the database."""

import asyncio
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.console.calls import MAX_CHARS
from tests.app.console.test_servers import API, as_key, get
from tests.storage.test_audit_read import Held
from tests.support.requirement import requirement
from tests.support.service import BOUND_S, KEY, OPERATOR_KEY, READER_KEY, FileServer, RunningService, running_service
from wicketgate.access.identity import hash_key
from wicketgate.gateway import traffic
from wicketgate.upstreams.embedded import StubUpstream

NARROW = "wg_narrow_0123456789012345678901234567890123456789"


async def call(service: RunningService, tool: str, arguments: Mapping[str, Any], key: str = "") -> None:
    headers = as_key(key) if key else {}
    await service.http.post("/operations/call", json={"operation": tool, "input": arguments}, headers=headers)


async def walk(service: RunningService, query: str, key: str = OPERATOR_KEY) -> list[dict[str, Any]]:
    """All records, by the cursors."""
    found: list[dict[str, Any]] = []
    cursor = ""
    while True:
        page = await get(service, f"calls?{query}&cursor={cursor.replace('+', '%2B')}", key)
        found += page["calls"]
        cursor = page["next_cursor"]
        if cursor is None:
            return found


@requirement("OPS-246")
async def test_records_are_filtered_and_read_page_by_page() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        for number in range(7):
            await call(service, "/files/read_file", {"path": str(number)})
        await call(service, "/files/fail", {})
        await call(service, "/files/read_file", {})
        await call(service, "/files/read_file", {"path": "r"}, READER_KEY)
        everything = await walk(service, "limit=3")
        assert len(everything) == len({each["call_id"] for each in everything}) == 10
        assert [each["at"] for each in everything] == sorted((each["at"] for each in everything), reverse=True)
        for query, expected in (
            ("tool=FAIL", 1),
            ("outcome=error", 1),
            ("outcome=invalid", 1),
            ("actor=reader", 1),
            ("server=files&operation=execute", 10),
            ("server=file", 0),
            ("q=read_file", 9),
            ("to=1", 0),
            ("from=1", 10),
            ("code=INVALID_ARGUMENT", 0),
        ):
            assert len(await walk(service, query)) == expected, query


@requirement("OPS-246")
@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=201", "limit=x", "cursor=nonsense", "outcome=good", "operation=eat", "from=x", "to=inf", "q="],
)
async def test_wrong_parameters_are_refused(query: str) -> None:
    query = query if query != "q=" else f"q={'x' * (MAX_CHARS + 1)}"
    async with running_service() as service:
        answer = await service.http.get(f"{API}/calls?{query}")
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request")


@requirement("OPS-246", "OPS-247")
async def test_a_caller_sees_its_own_calls_alone() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        await call(service, "/files/read_file", {"path": "a"})
        await call(service, "/files/read_file", {"path": "r"}, READER_KEY)
        (own,) = await walk(service, "", READER_KEY)
        assert own["actor"] == "reader"
        assert await walk(service, "actor=owner_1", READER_KEY) == []
        theirs = next(each for each in await walk(service, "") if each["actor"] == "owner_1")
        other = await service.http.get(f"{API}/calls/{theirs['call_id']}", headers=as_key(READER_KEY))
        assert other.status_code == 404
        whole = await get(service, f"calls/{own['call_id']}", READER_KEY)
        assert whole["records"] == [own]


@requirement("ACCESS-274")
async def test_a_narrower_key_of_an_actor_reads_only_records_of_what_it_may_use() -> None:
    narrow = {"id": "narrow", "sha256": hash_key(NARROW), "actor": "owner_1", "permissions": ["tools:files:read_file"]}
    shop = StubUpstream([{"name": "pay", "inputSchema": {"type": "object"}}], name="shop")
    settings = {"auth": {"keys": [narrow]}}
    async with (
        running_service(upstreams=[FileServer(), shop], settings=settings) as service,
        service.http.stream("GET", f"{API}/events", headers=as_key(NARROW)) as events,
    ):
        for tool in ("/files/fail", "/files/nothing", "/shop/pay", "/shop/nothing", "/files/read_file"):
            await call(service, tool, {"path": "a"} if tool == "/files/read_file" else {})
        wide = await walk(service, "", KEY)
        assert [each["name"] for each in wide] == ["read_file", "/shop/nothing", "pay", "/files/nothing", "fail"]
        own = await walk(service, "", NARROW)
        assert [each["name"] for each in own] == ["read_file", "/files/nothing"]
        for each in wide:
            answer = await service.http.get(f"{API}/calls/{each['call_id']}", headers=as_key(NARROW))
            assert answer.status_code == (200 if each in own else 404), each["name"]
        figures = await get(service, "traffic", NARROW)
        assert figures["tools"].keys() == {each["tool_id"] for each in own}
        text = ""
        async with asyncio.timeout(BOUND_S):
            async for piece in events.aiter_text():
                text += piece
                if "read_file" in text:
                    break
        assert "fail" not in text and "shop" not in text


@requirement("OPS-247")
async def test_one_call_tells_where_its_time_went() -> None:
    settings = {"plugins": {"security": {"_global": [{"handler": "secrets_filter"}]}}}
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        await call(service, "/files/read_file", {"path": "a"})
        (record,) = await walk(service, "")
        whole = await get(service, f"calls/{record['call_id']}")
        times = whole["times"]
        assert {stage["plugin"] for stage in whole["records"][0]["stages"]} == {"secrets_filter"}
        assert times["whole_ms"] == record["duration_ms"] > 0
        parts = times["server_ms"] + times["plugins_ms"] + times["gate_ms"]
        assert parts == pytest.approx(times["whole_ms"], abs=0.01)


@requirement("OPS-248")
async def test_older_records_come_from_the_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traffic, "MOST_RECORDS", 4)
    file = tmp_path / "audit.db"
    sink = {"handler": "audit_sql", "config": {"url": f"sqlite:///{file}"}}
    settings = {"plugins": {"auditing": {"_global": [sink]}}}
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        await call(service, "/files/read_file", {"path": "before"}, READER_KEY)
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        for number in range(9):
            await call(service, "/files/read_file", {"path": str(number)})
        for limit in (1, 3, 4, 5, 50):
            everything = await walk(service, f"limit={limit}")
            assert len(everything) == len({each["call_id"] for each in everything}) == 10, limit
            assert [each["at"] for each in everything] == sorted((each["at"] for each in everything), reverse=True)
        (own,) = await walk(service, "limit=2", READER_KEY)
        assert own["actor"] == "reader"
        assert len(await walk(service, "q=READ%25")) == 0
        whole = await get(service, f"calls/{own['call_id']}", READER_KEY)
        assert [each["phase"] for each in whole["records"]] == ["intent", "end"]
        # A row of another hand is shown as far as it can be read.
        with sqlite3.connect(file) as db:
            changes = "timestamp = '1', stages = '[7', duration_ms = 'x'"
            db.execute(f"UPDATE wicketgate_audit SET {changes} WHERE actor = 'reader'")
        (odd,) = await walk(service, "limit=2", READER_KEY)
        assert (odd["at"], odd["duration_ms"], odd["stages"]) == (0.0, 0.0, [])


@requirement("OPS-248")
async def test_a_database_that_cannot_be_read_hides_nothing_of_the_memory(tmp_path: Path) -> None:
    file = tmp_path / "audit.db"
    sink = {"handler": "audit_sql", "config": {"url": f"sqlite:///{file}"}, "critical": False}
    settings = {"plugins": {"auditing": {"_global": [sink]}}}
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        await call(service, "/files/read_file", {"path": "a"})
        file.write_bytes(b"no database" * 1_000)
        page = await get(service, "calls")
        assert (len(page["calls"]), page["older"]) == (1, "unread")
        assert str(tmp_path) not in str(page)


@requirement("OPS-298", "OPS-299")
async def test_odd_texts_are_refused_and_a_second_reading_of_an_actor_has_its_turn(tmp_path: Path) -> None:
    sink = {"handler": "audit_sql", "config": {"url": f"sqlite:///{tmp_path}/audit.db"}}
    settings = {"plugins": {"auditing": {"_global": [sink]}}}
    headers = as_key(OPERATOR_KEY)
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        await call(service, "/files/read_file", {"path": "a"})
        for name in ("q", "tool", "actor", "server", "code"):
            answer = await service.http.get(f"{API}/calls?{name}=%00", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (400, "invalid_request"), name
        assert (await service.http.get(f"{API}/calls/a%00b", headers=headers)).status_code == 404
        reader = service.app.state.gate.records.reader
        rows, reader._rows, reader._longest_s = reader._rows, Held(), BOUND_S
        asking = asyncio.create_task(service.http.get(f"{API}/calls", headers=headers))
        assert await asyncio.to_thread(reader._rows.begun.acquire, timeout=BOUND_S)
        reader._longest_s = 0.05
        refused = await service.http.get(f"{API}/calls", headers=headers)
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert refused.headers["retry-after"] == "1"
        reader._rows.go.release()
        assert (await asking).status_code == 200
        reader._rows = rows

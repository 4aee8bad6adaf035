"""``/metrics`` over HTTP: for callers who may read operations, and counting what every door answered."""

from tests.support.requirement import requirement
from tests.support.service import running_service


@requirement("OPS-38")
async def test_metrics_need_the_permission_to_read_operations() -> None:
    async with running_service() as service:
        refused = await service.http.get("/metrics")
        assert (refused.status_code, refused.json()["code"]) == (403, "forbidden")
        assert "ops:read" in refused.json()["message"]
        assert "wicketgate_upstream_up" in await service.metrics()


@requirement("OPS-38")
async def test_requests_are_counted_at_every_door_by_what_was_answered() -> None:
    async with running_service() as service:
        await service.chat()
        await service.http.post("/engine/chat", json={})
        await service.http.post("/mcp", content=b"no JSON")
        await service.http.get("/somewhere/else")
        lines = (await service.metrics()).splitlines()
    for path, status in (("/engine/chat", 200), ("/engine/chat", 400), ("/mcp", 400), ("other", 404)):
        assert f'wicketgate_http_requests_total{{path="{path}",status="{status}"}} 1.0' in lines
    assert 'wicketgate_http_seconds_count{path="/engine/chat"} 2.0' in lines
    assert any(line.startswith("wicketgate_loop_lag_seconds_count") for line in lines)

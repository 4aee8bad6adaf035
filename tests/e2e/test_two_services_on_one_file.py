"""Two ``wicketgate serve`` on one SQLite file: what each reports of the calls that the other runs."""

import signal
from pathlib import Path
from typing import Any

from tests.contract.test_tasks import become, created, get
from tests.e2e.test_calls_at_any_process import check_lost, client, handle_of, replica, until, view
from tests.e2e.test_drain import Holding
from tests.support.asking_server import asking_server
from tests.support.requirement import requirement


async def check_unfinished(url: str, task_id: str, handle: str) -> None:
    """Neither is reported as ended: each runs, or the same request is of use later."""
    task = await get(client(url), task_id)
    if "error" in task:
        assert task["error"]["data"] == {"reason": "not_reached", "retryable": True}, task
    else:
        assert task["result"]["status"] == "working", task
    viewed = await view(url, handle)
    assert viewed.get("status") == "running" or viewed.get("error") == "UPSTREAM_UNAVAILABLE", viewed


@requirement("EXEC-77", "EXEC-78", "FACE-109", "FACE-110")
async def test_a_call_of_one_service_is_never_reported_as_ended_by_the_other_before_it_has(tmp_path: Path) -> None:
    file = f"sqlite:///{tmp_path}/store.db"
    async with (
        Holding() as holding,
        Holding() as stuck,
        asking_server() as server,
        replica(tmp_path / "a", file, server.url) as (killed, first),
        replica(tmp_path / "b", file, server.url) as (_, second),
    ):
        task_id = await created(client(first), "mine__hold", {"port": holding.port})
        handle = await handle_of(first, holding.port)
        lost = await created(client(first), "mine__hold", {"port": stuck.port}), await handle_of(first, stuck.port)
        await holding.arrived(2)
        await stuck.arrived(2)
        for ids in ((task_id, handle), lost):
            await check_unfinished(second, *ids)

        holding.release()
        done = await become(client(first), task_id, "completed")
        ended = await until(lambda: view(first, handle), lambda body: body["status"] != "running")

        async def at_second() -> Any:
            return (await get(client(second), task_id)).get("result", {}), await view(second, handle)

        task, viewed = await until(at_second, lambda both: both[0].get("result") and "error" not in both[1])
        assert (task["status"], task["result"]) == ("completed", done["result"])
        assert (viewed["status"], viewed["summary"]) == ("ok", ended["summary"])
        await check_unfinished(second, *lost)

        killed.process.send_signal(signal.SIGKILL)
        await killed.ended()
        await check_lost(second, *lost)
        assert (holding.arrivals, stuck.arrivals) == (2, 2)

"""A process is killed where calls wait for an approval: others list them, decide, and run each once."""

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx

from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.served import address, write_config
from tests.support.service import BOUND_S, KEY
from wicketgate.access.identity import hash_key

LEAD, SECOND = (f"wg_{name}_0123456789012345678901234567890123456789" for name in ("lead", "second"))
TOOLS = """
from pathlib import Path
from wicketgate.tools import ToolRegistry

registry = ToolRegistry()


@registry.tool
async def pay(to: str) -> str:
    "Pay somebody."
    with Path(__file__).with_name("payments").open("a") as file:
        file.write(to + "\\n")
    return "paid"
"""


def config(folder: Path, url: str) -> Path:
    (folder / "paying_tools.py").write_text(TOOLS)
    keys: list[dict[str, Any]] = [
        {"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["tools:*"]}
    ]
    for id, key in (("lead", LEAD), ("second", SECOND)):
        keys.append({"id": id, "sha256": hash_key(key), "actor": id, "permissions": ["nothing"], "roles": ["lead"]})
    return write_config(
        folder,
        auth={"keys": keys, "seal_keys": ["k" * 40]},
        upstreams=[{"name": "bank", "python": "paying_tools:registry", "cwd": str(folder)}],
        access=[{"match": "bank:pay", "approval": {"by": "role:lead", "count": 2}}],
        storage={"url": url},
    )


async def pay(at: httpx.AsyncClient, to: str) -> httpx.Response:
    return await at.post("/operations/call", json={"operation": "/bank/pay", "input": {"to": to}})


async def decide(at: httpx.AsyncClient, id: str, decision: str, key: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    return await at.post(f"/console/api/approvals/{id}", json={"decision": decision}, headers=headers)


@requirement("OPS-290", "OPS-291", "OPS-292")
async def test_what_waited_at_a_killed_process_is_listed_decided_and_run_once_at_others(
    tmp_path: Path, redis_url: str
) -> None:
    file = config(tmp_path, redis_url)
    async with AsyncExitStack() as stack:
        serve = ("app", "serve", "--config", str(file), "--port", "0")
        running = [await stack.enter_async_context(program(*serve)) for _ in range(3)]
        at = [
            await stack.enter_async_context(
                httpx.AsyncClient(
                    base_url=await address(each),
                    headers={"Authorization": f"Bearer {KEY}"},
                    trust_env=False,
                    timeout=BOUND_S,
                )
            )
            for each in running
        ]
        ids = {to: (await pay(at[0], to)).json()["details"]["id"] for to in ("ann", "bob")}
        assert (await decide(at[0], ids["ann"], "approve", LEAD)).json()["complete"] is False
        os.kill(running[0].process.pid, signal.SIGKILL)
        await running[0].ended()

        # The list has both calls with their arguments, and the vote.
        listed = await at[1].get("/console/api/approvals", headers={"Authorization": f"Bearer {SECOND}"})
        found = {
            each["id"]: (each["args"], [vote["actor"] for vote in each["votes"]]) for each in listed.json()["waiting"]
        }
        assert found == {ids["ann"]: ({"to": "ann"}, ["lead"]), ids["bob"]: ({"to": "bob"}, [])}
        assert (await decide(at[1], ids["ann"], "approve", LEAD)).status_code == 409
        assert (await decide(at[1], ids["ann"], "approve", SECOND)).json()["complete"] is True
        assert (await decide(at[2], ids["bob"], "deny", SECOND)).status_code == 200
        ran = [(await pay(each, "ann")).status_code for each in (at[2], at[1], at[2])]
        refused = [(await pay(each, "bob")).json()["code"] for each in (at[1], at[2])]
    assert sorted(ran) == [200, 403, 403]
    assert refused == ["FORBIDDEN", "APPROVAL_REQUIRED"]
    assert (tmp_path / "payments").read_text() == "ann\n"

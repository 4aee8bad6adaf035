"""``wicketgate approvals`` against a running service: an approver reads a call and decides on it."""

import json
from pathlib import Path

import httpx

from tests.e2e.test_serve import echo_id
from tests.support.process import program
from tests.support.requirement import requirement
from tests.support.served import address, write_config
from tests.support.service import BOUND_S, KEY
from wicketgate.access.identity import hash_key

LEAD = "wg_lead_0123456789012345678901234567890123456789"


async def wicketgate(*args: str, key: str = LEAD) -> tuple[int, str, str]:
    async with program("app", "approvals", *args, env={"WG_KEY": key}) as running:
        return await running.ended(bound_s=40), running.stdout, running.stderr


@requirement("OPS-340", "OPS-341", "OPS-342")
async def test_an_approver_lists_reads_and_decides_in_a_terminal(tmp_path: Path) -> None:
    keys = [
        {"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["tools:*"]},
        {"id": "lead", "sha256": hash_key(LEAD), "actor": "lena", "permissions": [], "roles": ["lead"]},
    ]
    access = [{"match": "echo:*", "approval": {"by": "role:lead"}}]
    # Also where the gate serves no pages.
    config = write_config(tmp_path, auth={"keys": keys}, access=access, server={"console": False})
    async with program("app", "serve", "--config", str(config), "--port", "0") as running:
        url = await address(running)
        where = ("--url", url)
        code, _, told = await wicketgate("list", *where)
        assert (code, "No call is waiting" in told) == (0, True)
        call = {"operation": "/echo/echo", "input": {"text": "pay\x1b[2J 5"}}
        headers = {"Authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=url, headers=headers, trust_env=False, timeout=BOUND_S) as http:
            assert (await http.post("/operations/call", json=call)).json()["code"] == "APPROVAL_REQUIRED"
            code, listed, _ = await wicketgate("list", *where)
            assert (code, "owner_1" in listed, "role:lead" in listed, "yes" in listed) == (0, True, True, True)
            code, document, _ = await wicketgate("list", *where, "--json")
            (ask,) = json.loads(document)["waiting"]
            short = ask["id"].rpartition(".")[2]
            assert short in listed
            code, shown, _ = await wicketgate("show", short[:6], *where)
            assert code == 0 and echo_id() in shown and ask["definition"] in shown and "\\u001b" in shown
            assert "\x1b" not in shown
            # The caller cannot.
            code, _, refused = await wicketgate("approve", short, *where, key=KEY)
            assert (code, "rule names others" in refused) == (1, True)
            code, done, _ = await wicketgate("approve", short, *where)
            assert (code, "runs once" in done) == (0, True)
            assert (await http.post("/operations/call", json=call)).status_code == 200
            code, _, gone = await wicketgate("deny", short, *where)
            assert (code, "no waiting call" in gone) == (1, True)
            await http.post("/operations/call", json=call)
            (again,) = json.loads((await wicketgate("list", *where, "--json"))[1])["waiting"]
            code, denied, _ = await wicketgate("deny", again["id"], *where, "--json")
            assert (code, json.loads(denied)["decision"]) == (0, "deny")
            assert (await http.post("/operations/call", json=call)).json()["code"] == "FORBIDDEN"

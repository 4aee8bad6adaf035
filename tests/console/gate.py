"""A gate with a known fleet, as a process of its own: a shop, hostile texts, a server that fails, a tool in quarantine
and one that needs an approval."""

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.console.fleet import BILL
from tests.support.process import Program, program
from tests.support.service import BOUND_S
from tests.support.until import until
from wicketgate.access.identity import hash_key
from wicketgate.catalog.pins import pin
from wicketgate.config.lock_file import write_lock

OWNER = "wg_owner_0123456789012345678901234567890123456789"
LEAD = "wg_lead_0123456789012345678901234567890123456789"
READER = "wg_reader_012345678901234567890123456789012345678"
FLEET = str(Path(__file__).with_name("fleet.py"))
FAILS = "import sys; sys.stderr.write('cannot reach the <b>database</b>\\n'); sys.exit(3)"


def settings(folder: Path) -> dict[str, Any]:
    keys = [
        {"id": "owner", "sha256": hash_key(OWNER), "actor": "olga", "permissions": ["tools:*", "ops:*", "keys:*"]},
        {"id": "lead", "sha256": hash_key(LEAD), "actor": "lena", "permissions": ["nothing"], "roles": ["lead"]},
        {"id": "reader", "sha256": hash_key(READER), "actor": "rita", "permissions": ["tools:*"]},
    ]
    servers = [{"name": name, "command": [sys.executable, "-ISE", FLEET, name]} for name in ("shop", "odd")]
    return {
        "auth": {"keys": keys},
        "upstreams": [*servers, {"name": "broken", "command": [sys.executable, "-ISE", "-c", FAILS]}],
        "pins": {"file": str(folder / "wicketgate.lock")},
        "access": [
            {"match": "shop:get_order", "when": "args.order_id == 'ord_denied'", "effect": "deny"},
            {"match": "shop:refund_order", "approval": "always"},
            {"match": "shop:cancel_order", "approval": {"by": "role:lead"}},
        ],
        "gates": {"desk": {"tools": ["shop:get_*"], "face": "namespaced"}},
        "mcp": {"cache_stable": True},
        "model": {"provider": "scripted"},
    }


class Fleet:
    """A gate that runs at *url*. It can be stopped, and started again at the same address."""

    def __init__(self, config: Path) -> None:
        self._config = config
        self._tools = {"get_order", "markup"} if yaml.safe_load(config.read_text())["upstreams"] else set[str]()
        self._running: Program | None = None
        self._context: Any = None
        self._ids: dict[str, str] = {}
        self.url = ""

    async def start(self) -> None:
        port = self.url.rpartition(":")[2] or "0"
        self._context = program("app", "serve", "--config", str(self._config), "--port", port)
        self._running = await self._context.__aenter__()
        self.url = (await self._running.wait_for(r"ready on (http://127\.0\.0\.1:\d+)"))[1]
        self.http = httpx.AsyncClient(
            base_url=self.url, headers={"Authorization": f"Bearer {OWNER}"}, trust_env=False, timeout=BOUND_S
        )
        await until(lambda: self.get("map"), self._settled, bound_s=BOUND_S, pause_s=0.02)

    def _settled(self, found: Mapping[str, Any]) -> bool:
        self._ids = dict(zip(found["columns"]["name"], found["columns"]["id"], strict=True))
        return self._tools <= self._ids.keys() and all(
            each["state"] == "ready" or each["error"] for each in found["upstreams"]
        )

    async def stop(self) -> None:
        if self._running is not None:
            await self.http.aclose()
            await self._running.stop(signal.SIGTERM)
            await self._context.__aexit__(None, None, None)
            self._running = None

    async def without_key(self, key_id: str) -> None:
        """Take a key out of the configuration, and have it read again."""
        assert self._running is not None
        whole = yaml.safe_load(self._config.read_text())
        whole["auth"]["keys"] = [key for key in whole["auth"]["keys"] if key["id"] != key_id]
        self._config.write_text(yaml.safe_dump(whole))
        self._running.process.send_signal(signal.SIGHUP)

    async def get(self, path: str, key: str = OWNER) -> Any:
        answer = await self.http.get(f"/console/api/{path}", headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def call(self, name: str, key: str = OWNER, **arguments: Any) -> None:
        """Run the tool *name*, as a model's tool_execute would."""
        body = {"id": self._ids[name], "args": arguments}
        await self.http.post("/console/api/execute", json=body, headers={"Authorization": f"Bearer {key}"})

    async def a_call(self) -> str:
        """Runs the tool whose name is markup; returns the id of the call."""
        await self.call("markup")
        found = await self.get("calls?server=odd&limit=1")
        return str(found["calls"][0]["call_id"])

    async def deny_all(self) -> None:
        """Take back every call that waits for an approval, as its own caller."""
        for key in (OWNER, READER):
            for call in (await self.get("approvals", key))["waiting"]:
                if call["own"]:
                    headers = {"Authorization": f"Bearer {key}"}
                    path = f"/console/api/approvals/{call['id']}"
                    await self.http.post(path, json={"decision": "deny"}, headers=headers)
                    await self.call(call["name"], key, **call["args"])  # a denial refuses the next same call

    def id(self, name: str) -> str:
        return self._ids[name]


@asynccontextmanager
async def fleet(folder: Path, **sections: Any) -> AsyncIterator[Fleet]:
    """Entered when the servers that work are ready, and the one that does not has failed."""
    write_lock(folder / "wicketgate.lock", {"shop": {"pay_bill": pin(BILL)}})
    config = folder / "wicketgate.yaml"
    config.write_text(yaml.safe_dump({**settings(folder), **sections}))
    running = Fleet(config)
    await running.start()
    try:
        yield running
    finally:
        await running.stop()

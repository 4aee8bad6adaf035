"""``deploy/nginx.conf`` in the real nginx, in front of two real gates, and what Prometheus and Grafana ask of them."""

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.files import DEPLOY, read_yaml
from tests.e2e.test_drain import TOOLS, Holding
from tests.support.debian import Program as Nginx
from tests.support.debian import debian_program
from tests.support.model_server import DONE, ModelServer, Reply, chunk, text_turn
from tests.support.ports import free_port
from tests.support.process import ROOT, Program, command, program
from tests.support.requirement import requirement
from tests.support.served import ECHO, HEADERS, address
from tests.support.service import BOUND_S, KEY, chat_body, frames
from tests.support.until import until
from wicketgate.access.identity import hash_key

FIRST, SECOND = "gate-1:8080", "gate-2:8080"


@dataclass
class Fleet:
    """*urls* of the gates by their names in nginx.conf; *model* answers both."""

    proxy: str
    gates: dict[str, Program]
    urls: dict[str, str]
    model: ModelServer


def nginx_conf(folder: Path, port: int, hosts: dict[str, str]) -> Path:
    """The file of deploy/ with addresses and folders of this machine, and nothing else changed."""
    text = (DEPLOY / "nginx.conf").read_text()
    for (name, host), end in zip(hosts.items(), (r"~\.11:8080$", r"~\.12:8080$"), strict=True):
        assert text.count(f"server {name} ") == 3
        assert text.count(end) == 1
        text = text.replace(f"server {name} ", f"server {host} ").replace(end, f"~{host}$")
    text = text.replace("listen 8080;", f"listen 127.0.0.1:{port};").replace(" /tmp/", f" {folder}/")
    # One worker, so that requests one after the other go to each gate in turn.
    text = text.replace("worker_processes auto;", "worker_processes 1;")
    path = folder / "nginx.conf"
    path.write_text(text)
    return path


def gate_config(folder: Path, model: ModelServer) -> Path:
    (folder / "holding_tools.py").write_text(TOOLS)
    path = folder / "wicketgate.yaml"
    key = {"id": "test", "sha256": hash_key(KEY), "actor": "owner_1", "permissions": ["tools:*", "ops:read"]}
    key["expires_at"] = "2999-01-01T00:00:00Z"
    audit = {"handler": "audit_jsonl", "config": {"path": str(folder / "audit.jsonl")}}
    config = {
        "server": {"drain_s": 30, "trusted_proxies": ["127.0.0.1"]},
        "auth": {"keys": [key]},
        "model": {"provider": "openai-chat", "base_url": model.base_url, "model": "m"},
        "plugins": {"auditing": {"_global": [audit]}},
        "upstreams": [ECHO, {"name": "held", "python": "holding_tools:registry", "cwd": str(folder)}],
    }
    path.write_text(json.dumps(config))
    return path


@asynccontextmanager
async def fleet(folder: Path) -> AsyncIterator[Fleet]:
    nginx: Nginx = debian_program("nginx", "nginx")
    async with ModelServer() as model:
        config = gate_config(folder, model)
        line = ("app", "serve", "--config", str(config), "--port", "0")
        async with program(*line) as first, program(*line) as second:
            gates = {FIRST: first, SECOND: second}
            urls = {name: await address(gate) for name, gate in gates.items()}
            port = free_port()
            conf = nginx_conf(folder, port, {name: url.removeprefix("http://") for name, url in urls.items()})
            start = (str(nginx.path), "-e", "stderr", "-c", str(conf), "-p", str(folder), "-g", "daemon off;")
            tried = subprocess.run([*start, "-t"], env=nginx.environment, capture_output=True, text=True, check=False)
            assert "test is successful" in tried.stderr, tried.stderr
            async with command(*start, folder=folder, env=nginx.environment):
                proxy = f"http://127.0.0.1:{port}"
                async with httpx.AsyncClient(trust_env=False) as http:
                    await until(lambda: answers(http, proxy), bound_s=BOUND_S)
                yield Fleet(proxy, gates, urls, model)


async def answers(http: httpx.AsyncClient, url: str) -> bool:
    try:
        return (await http.get(f"{url}/healthz")).status_code == 200
    except httpx.TransportError:
        return False


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with fleet(tmp_path) as made:
        yield made


def client(fleet: Fleet, source: str = "127.0.0.3") -> httpx.AsyncClient:
    """A client of the proxy, at the address *source*."""
    way = httpx.AsyncHTTPTransport(local_address=source, trust_env=False)
    return httpx.AsyncClient(base_url=fleet.proxy, headers=HEADERS, transport=way, timeout=BOUND_S)


async def posts(fleet: Fleet, name: str) -> int:
    """The POSTs of chats that a gate has answered."""
    async with httpx.AsyncClient(base_url=fleet.urls[name], headers=HEADERS, trust_env=False) as http:
        text = (await http.get("/metrics")).text
    found = re.findall(r'^wicketgate_http_requests_total\{path="/engine/chat",status="\d+"\} (\S+)', text, re.M)
    return int(sum(map(float, found)))


@requirement("OPS-211")
async def test_events_come_through_as_they_are_made_from_each_gate_in_turn(running: Fleet) -> None:
    for each in range(2):
        go_on = asyncio.Event()
        begin, end = chunk({"content": "first"}), [chunk({"content": "second"}), chunk({}, "stop"), DONE]
        running.model.script.append(Reply([begin, go_on, *end]))
        # Words of the client about its own address: the gate takes the one that nginx saw.
        headers = {"X-Forwarded-For": "203.0.113.9", "Forwarded": "for=203.0.113.8"}
        async with client(running, "127.0.0.2") as http, asyncio.timeout(BOUND_S):
            body = chat_body("hi", correlation_id=f"turn-{each}")
            async with http.stream("POST", "/engine/chat", json=body, headers=headers) as answer:
                assert answer.status_code == 200
                text = ""
                async for part in answer.aiter_text():
                    text += part
                    if "first" in text and not go_on.is_set():
                        # Seen while the model waits, so nothing keeps it back.
                        go_on.set()
        assert [event for event, _ in frames(text)] == ["text-delta", "text-delta", "done"]
    for gate in running.gates.values():
        await gate.wait_for(r"POST /engine/chat.*\n", "stdout")
    logged = [line for gate in running.gates.values() for line in gate.logs() if "/engine/chat" in line["message"]]
    assert sorted(line["correlation_id"] for line in logged) == ["turn-0", "turn-1"]
    assert [await posts(running, name) for name in (FIRST, SECOND)] == [1, 1]
    assert {line["client"] for line in logged} == {"127.0.0.2"}


@requirement("OPS-211")
async def test_a_gate_that_drains_or_is_gone_refuses_nobody(running: Fleet) -> None:
    go_on = asyncio.Event()
    running.model.script.append(Reply([chunk({"content": "first"}), go_on, chunk({}, "stop"), DONE]))
    async with client(running) as http, asyncio.timeout(BOUND_S):
        async with http.stream("POST", "/engine/chat", json=chat_body()) as answer:
            parts = answer.aiter_text()
            seen = await anext(parts)
            # The one that holds the stream is asked to stop: it drains while the stream runs.
            holds = await holder(running)
            stopping = running.gates[holds]
            stopping.process.send_signal(signal.SIGTERM)
            await until_draining(running.urls[holds])
            running.model.script += [text_turn("well")] * 6
            statuses = [(await http.post("/engine/chat", json=chat_body())).status_code for _ in range(6)]
            assert statuses == [200] * 6
            go_on.set()
            async for part in parts:
                seen += part
        assert frames(seen)[-1][1]["finish_reason"] == "stop"
        assert await stopping.ended() == 0
        running.model.script += [text_turn("well")] * 4
        assert [(await http.post("/engine/chat", json=chat_body())).status_code for _ in range(4)] == [200] * 4
        # The last one drains too: now it says so in its own words.
        last_words = asyncio.Event()
        running.model.script.append(Reply([chunk({"content": "last"}), last_words, chunk({}, "stop"), DONE]))
        async with http.stream("POST", "/engine/chat", json=chat_body()) as answer:
            (last,) = [name for name in running.gates if name != holds]
            running.gates[last].process.send_signal(signal.SIGTERM)
            await until_draining(running.urls[last])
            refused = await http.post("/engine/chat", json=chat_body())
            assert (refused.status_code, refused.json()["code"]) == (503, "engine_unavailable")
            assert refused.headers["Retry-After"]
            last_words.set()
            await answer.aread()
        assert await running.gates[last].ended() == 0
    assert len(running.model.requests) == 12, "no chat ran twice"


async def holder(fleet: Fleet, kind: str = "chat") -> str:
    """The gate that has the only place of the *kind*."""
    for name, url in fleet.urls.items():
        async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False) as http:
            if f'wicketgate_active{{kind="{kind}"}} 1.0' in (await http.get("/metrics")).text:
                return name
    raise AssertionError(f"no gate has a place of {kind}")


async def until_draining(url: str) -> None:
    async with httpx.AsyncClient(base_url=url, headers=HEADERS, trust_env=False) as http:
        await until(
            lambda: http.post("/operations/call", json={"operation": "/x/y"}), lambda answer: answer.status_code == 503
        )


@requirement("OPS-211")
async def test_a_call_whose_gate_is_killed_is_sent_to_no_other(running: Fleet) -> None:
    async with client(running) as http, Holding() as holding, asyncio.timeout(BOUND_S):
        body = {"operation": "/held/hold", "input": {"port": holding.port}}
        asked = asyncio.create_task(http.post("/operations/call", json=body))
        await holding.arrived(1)
        killed = await holder(running, "calls")
        running.gates[killed].process.send_signal(signal.SIGKILL)
        assert (await asked).status_code == 502
        # The other gate answers what is new, and has not been given that call.
        statuses = [(await http.get("/healthz")).status_code for _ in range(4)]
        assert statuses == [200] * 4
        assert (await http.get("/metrics")).status_code == 404
        running.model.script.append(text_turn("well"))
        assert (await http.post("/engine/chat", json=chat_body())).status_code == 200
        (alive,) = [url for name, url in running.urls.items() if name != killed]
        async with httpx.AsyncClient(base_url=alive, headers=HEADERS, trust_env=False) as direct:
            assert 'path="/operations/call"' not in (await direct.get("/metrics")).text
            assert 'wicketgate_active{kind="calls"} 0.0' in (await direct.get("/metrics")).text


_NAME = re.compile(r"\b(?:wicketgate|process)_\w+")
_SELECTED = re.compile(r"\b((?:wicketgate|process)_\w+)\{([^}]*)\}")


def expressions() -> list[str]:
    """The PromQL of every alert, every panel and the adapter of the cluster."""
    alerts = read_yaml(DEPLOY / "prometheus" / "alerts.yml")
    found = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "wicketgate.json").read_text())
    found += [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    adapter = read_yaml(DEPLOY / "kubernetes" / "monitoring" / "adapter.yaml")
    return [*found, *(rule["seriesQuery"] for rule in adapter["rules"]["custom"])]


@requirement("OPS-212")
async def test_each_metric_of_the_board_and_the_alerts_is_at_a_gate(running: Fleet) -> None:
    running.model.script += [text_turn("well")]
    async with httpx.AsyncClient(base_url=running.urls[FIRST], headers=HEADERS, trust_env=False) as http:
        assert (await http.post("/engine/chat", json=chat_body())).status_code == 200
        text = (await http.get("/metrics")).text
    labels: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        # A family that counts nothing yet has its name alone.
        suffix = {"counter": ["_total"], "histogram": ["_bucket", "_count", "_sum"]}.get(family.type, [""])
        labels.update({f"{family.name}{each}": set() for each in suffix})
        for sample in family.samples:
            labels.setdefault(sample.name, set()).update(sample.labels)
    of_prometheus = {"job", "instance", "namespace", "pod"}
    for expression in expressions():
        assert expression.count("(") == expression.count(")"), expression
        for name in _NAME.findall(expression):
            assert name in labels, f"{name} in {expression}"
        for name, matchers in _SELECTED.findall(expression):
            asked = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            assert not labels[name] or asked <= labels[name] | of_prometheus, expression
    assert len(expressions()) > 60


@requirement("OPS-212")
def test_each_metric_that_is_worth_an_alarm_has_its_alert() -> None:
    page = (ROOT / "docs" / "operations" / "monitoring.md").read_text()
    table = page[page.index("Alert on these:") : page.index("## Logs")]
    wanted = {name for row in re.findall(r"^\| (`.*?) \|", table, re.M) for name in _NAME.findall(row)}
    alerts = read_yaml(DEPLOY / "prometheus" / "alerts.yml")
    rules: list[dict[str, Any]] = [rule for group in alerts["groups"] for rule in group["rules"]]
    used = {re.sub(r"_(bucket|count)$", "", name) for rule in rules for name in _NAME.findall(rule["expr"])}
    assert wanted - used == set()
    assert len(wanted) > 20
    assert len({rule["alert"] for rule in rules}) == len(rules)
    assert all(rule["labels"]["severity"] in ("page", "ticket") and rule["annotations"]["summary"] for rule in rules)


@requirement("OPS-212")
def test_promtool_accepts_the_alerts_and_what_the_board_asks(tmp_path: Path) -> None:
    promtool = debian_program("promtool", "prometheus")
    asked = (expression.replace("$__rate_interval", "5m") for expression in expressions())
    rules = [{"record": f"expression_{number}", "expr": each} for number, each in enumerate(asked)]
    board = tmp_path / "board.yml"
    board.write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))
    check: list[str | Path] = [promtool.path, "check", "rules", DEPLOY / "prometheus" / "alerts.yml", board]
    checked = subprocess.run(check, env=promtool.environment, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"SUCCESS: {len(rules)} rules found" in checked.stdout


@requirement("OPS-212")
def test_prometheus_and_grafana_find_their_files() -> None:
    scrape = read_yaml(DEPLOY / "prometheus" / "prometheus.yml")
    assert [(DEPLOY / "prometheus" / name).is_file() for name in scrape["rule_files"]] == [True]
    (job,) = scrape["scrape_configs"]
    assert job["static_configs"] == [{"targets": [FIRST, SECOND]}]
    assert job["job_name"] == "wicketgate"
    provisioning = DEPLOY / "grafana" / "provisioning"
    (source,) = read_yaml(provisioning / "datasources" / "prometheus.yml")["datasources"]
    board = json.loads((DEPLOY / "grafana" / "dashboards" / "wicketgate.json").read_text())
    used = {panel["datasource"]["uid"] for panel in board["panels"] if panel["type"] != "row"}
    assert used == {source["uid"]}
    (provider,) = read_yaml(provisioning / "dashboards" / "wicketgate.yml")["providers"]
    folder = provider["options"]["path"]
    services = read_yaml(DEPLOY / "compose.yml")["services"]
    assert f"./grafana/dashboards:{folder}:ro" in services["grafana"]["volumes"]
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in board["panels"]})

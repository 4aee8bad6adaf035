"""``python -m fuzz.door``: mcp-fuzzer from PyPI against ``/mcp`` and ``/mcp/namespaced`` of a gate that runs.

What it sends is for the gate to refuse. It fails if an answer is a 5xx, the log has a traceback, or the gate does not
answer afterwards.
"""

import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from wicketgate.storage.keys import new_key

FACES = ("mcp", "mcp/namespaced")
RUNS = 10
LONGEST_S = 300
START_S = 30.0
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


@contextmanager
def gate(folder: Path) -> Iterator[tuple[str, str, Path]]:
    """A gate over one server: its URL, its key and its log."""
    key, digest = new_key("fuzz")
    entry = {"id": "fuzz", "sha256": digest, "actor": "fuzz", "permissions": ["tools:*"]}
    tools = Path(sys.executable).parent
    server = {"name": "time", "command": [str(tools / "mcp-server-time")]}
    config, log = folder / "gate.json", folder / "gate.log"
    config.write_text(json.dumps({"auth": {"keys": [entry]}, "upstreams": [server], "server": {"log_format": "json"}}))
    command = [sys.executable, "-m", "wicketgate", "serve", "--config", str(config), "--port", "0"]
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            deadline, found = time.monotonic() + START_S, None
            while found is None and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.05)
                found = re.search(r"ready on (http://127\.0\.0\.1:\d+)", log.read_text())
            if found is None:
                sys.exit(f"the gate did not start: {log.read_text()[-2_000:]}")
            yield found[1], key, log
        finally:
            process.terminate()


def main() -> None:
    with tempfile.TemporaryDirectory() as name, gate(Path(name)) as (url, key, log):
        header = {"Authorization": f"Bearer {key}"}
        auth = Path(name, "auth.json")
        auth.write_text(
            json.dumps({"providers": {"gate": {"type": "custom", "headers": header}}, "default_provider": "gate"})
        )
        for face in FACES:
            endpoint = f"{url}/{face}"
            command = [str(Path(sys.executable).with_name("mcp-fuzzer")), "--mode", "all", "--phase", "both"]
            command += ["--protocol", "streamablehttp", "--endpoint", endpoint, "--runs", str(RUNS)]
            command += ["--runs-per-type", str(RUNS), "--auth-config", str(auth), "--output-dir", name]
            done = subprocess.run(command, capture_output=True, text=True, cwd=name, timeout=LONGEST_S, check=False)
            print(f"{face}: mcp-fuzzer ended with {done.returncode}")
            if done.returncode > 1:
                sys.exit(f"{done.stdout[-3_000:]}\n{done.stderr[-3_000:]}")
            headers = {**header, "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
            after = httpx.post(endpoint, json=CALL, headers=headers, timeout=10, trust_env=False)
            assert after.status_code == 200, (
                f"the gate does not answer any more: {after.status_code} {after.text[:200]}"
            )
        records = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        posts = [each for each in records if each.get("component") == "http" and "POST /mcp" in each["message"]]
        broken = [each for each in posts if each.get("status", 0) >= 500]
        raised = [each for each in records if "Traceback" in json.dumps(each)]
    print(f"{len(posts)} requests, {len(broken)} answers of 5xx, {len(raised)} tracebacks")
    for each in (*broken, *raised)[:5]:
        print(json.dumps(each)[:2_000])
    sys.exit(1 if broken or raised or len(posts) < 10 * len(FACES) else 0)


if __name__ == "__main__":
    main()

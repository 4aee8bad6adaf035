"""Embeds a gate in a program of its own: executes tools, and reports what the process looks like.

``python -m tests.support.embedded_gate wanted.json`` prints one JSON object. The file holds ``settings``, and under
``calls`` the name of a tool by upstream. The first look at the process comes before any import of the library.
"""

import asyncio
import gc
import json
import logging
import signal
import sys
from pathlib import Path
from typing import Any

FRAMEWORKS = ("fastapi", "starlette", "uvicorn", "sse_starlette")


def look() -> dict[str, Any]:
    """State of the process that a library has to leave alone."""
    root = logging.getLogger()
    return {
        "thresholds": gc.get_threshold(),
        "frozen": gc.get_freeze_count(),
        "collects": gc.isenabled(),
        "signals": {number.name: id(signal.getsignal(number)) for number in signal.valid_signals() if number < 32},
        "log_flags": (logging.logThreads, logging.logProcesses, logging.logMultiprocessing),
        "log_root": (root.level, len(root.handlers), len(root.filters)),
        "log_levels": {name: logging.getLogger(name).level for name in ("mcp", "httpx", "asyncio", "wicketgate")},
        "log_record": repr(logging.getLogRecordFactory()),
        "path": list(sys.path),
    }


async def main() -> None:
    before = look()
    from wicketgate.access.identity import Identity
    from wicketgate.config.settings import Settings
    from wicketgate.gate import Gate
    from wicketgate.ports import CallContext

    wanted = json.loads(Path(sys.argv[1]).read_text())
    answers: dict[str, Any] = {}
    async with Gate(Settings.model_validate(wanted["settings"])) as gate:
        for item in gate.runtime.catalog().items.values():
            if wanted["calls"].get(item.server) != item.upstream_name:
                continue
            context = CallContext(Identity("me", ("*",)), "trace", "session")
            answer = await gate.surface.call("tool_execute", {"tool_id": item.id, "args": {}}, context)
            answers[item.server] = answer.structured.get("status")
        during = look()
    loaded = [name for name in FRAMEWORKS if name in sys.modules]
    print(json.dumps({"answers": answers, "loaded": loaded, "before": before, "during": during, "after": look()}))


asyncio.run(main())

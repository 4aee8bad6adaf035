"""The client of MCP servers needs neither the SDK, nor its types, nor a web framework."""

import subprocess
import sys

from tests.support.process import ROOT
from tests.support.requirement import requirement

PROGRAM = """
import pkgutil, sys
import wicketgate.upstreams.mcp as room
for module in pkgutil.iter_modules(room.__path__, room.__name__ + "."):
    __import__(module.name)
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


@requirement("LIB-2", "OPS-376")
def test_the_whole_room_is_imported_without_the_sdk_and_a_web_framework() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"wicketgate", "pydantic", "httpx"} <= loaded
    assert not loaded & {"mcp", "mcp_types", "fastapi", "starlette", "uvicorn", "sse_starlette", "httpx2", "aiohttp"}

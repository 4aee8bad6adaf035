"""The soak's upstream of typed Python functions (``python: bench.soak_tools:registry``)."""

from bench.soak_server import call
from wicketgate.tools import ToolRegistry

SERVER = "python"

registry = ToolRegistry()


@registry.tool(read_only=True)
async def mark_python(caller: str, number: int, pause_ms: int = 0, chars: int = 0) -> str:
    """Give back the mark of python for a caller and a number, after a pause."""
    return await call(SERVER, caller, number, pause_ms, chars)

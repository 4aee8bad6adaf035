"""Modules that need the SDK of MCP, imported by the first request that needs them (OPS-370)."""

import importlib
from functools import partial
from types import ModuleType

from wicketgate.daemon_threads import DaemonThreads

TYPES = "mcp_types.methods"
"""The SDK's module that checks requests, answers and results if they are not plain (``fit``)."""
SERVER = "wicketgate.faces.mcp.sdk_server"

_imported: dict[str, ModuleType] = {}


async def imported(name: str) -> ModuleType:
    """Returns the module *name*. The first time a thread imports it, while the loop goes on. Raises what it raises."""
    module = _imported.get(name)
    if module is None:
        thread = DaemonThreads(1, f"import of {name}")
        try:
            module = _imported[name] = await thread.run(partial(importlib.import_module, name))
        finally:
            thread.close()
    return module

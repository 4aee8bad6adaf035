"""Runtimes whose catalog is in force."""

from wicketgate.gateway.runtime import ProxyRuntime


async def refreshed(runtime: ProxyRuntime) -> ProxyRuntime:
    """*runtime*, after its upstreams gave their tools."""
    await runtime.refresh_catalog()
    return runtime

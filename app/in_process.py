"""The engine for callers in Python, with no port open: the same events as over HTTP (S3 "Same-Process Option"; E96)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from app.engine.loop import Engine
from app.engine.model import Provider
from app.gateway.ports import Upstream
from app.main import create_app
from app.settings import Settings


@asynccontextmanager
async def running_engine(
    settings: Settings, *, upstreams: Sequence[Upstream] | None = None, provider: Provider | None = None
) -> AsyncIterator[Engine]:
    """Connect what *settings* name, and wait until it is ready: the whole house, only nobody answers the door.

    *upstreams* and *provider* stand in for the configured ones. Raises ConfigError.
    """
    app = create_app(settings, upstreams=upstreams, provider=provider)
    async with app.router.lifespan_context(app):
        await app.state.lifecycle.wait_ready()
        yield app.state.engine

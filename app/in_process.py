"""The engine for callers in Python, with no port open: the same events as over HTTP (S3 "Same-Process Option"; E96)."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from app.main import create_app
from wicketgate.config.settings import Settings
from wicketgate.engine.loop import Engine
from wicketgate.faces.surface import ToolSurface
from wicketgate.models.provider import Provider
from wicketgate.ports import Upstream


@dataclass(frozen=True, slots=True)
class House:
    """What stands behind the doors: the engine, and the face that it uses."""

    engine: Engine
    surface: ToolSurface


@asynccontextmanager
async def running_house(
    settings: Settings, *, upstreams: Sequence[Upstream] | None = None, provider: Provider | None = None
) -> AsyncIterator[House]:
    """Connect what *settings* name, and wait until it is ready: the whole house, only nobody answers the door.

    *upstreams* and *provider* stand in for the configured ones. Raises ConfigError.
    """
    app = create_app(settings, upstreams=upstreams, provider=provider)
    async with app.router.lifespan_context(app):
        await app.state.lifecycle.wait_ready()
        yield House(app.state.engine, app.state.surface)


@asynccontextmanager
async def running_engine(
    settings: Settings, *, upstreams: Sequence[Upstream] | None = None, provider: Provider | None = None
) -> AsyncIterator[Engine]:
    """The engine of a running house. Raises ConfigError."""
    async with running_house(settings, upstreams=upstreams, provider=provider) as house:
        yield house.engine

"""The doors are opened by the first request, or at the start."""

import asyncio

import pytest

from app.late_doors import LateDoors
from app.mcp_door import McpDoors
from tests.support.requirement import requirement
from wicketgate.errors import ConfigError


def never_made() -> McpDoors:
    raise AssertionError("nothing was imported")


def refuses() -> None:
    raise ImportError("no such thing")


def waiting_doors() -> tuple[LateDoors, list[str]]:
    """Doors that the first request opens, and what has been imported for them."""
    loaded: list[str] = []
    return LateDoors(["gateway"], never_made, at_start=False, load=lambda: loaded.append("it")), loaded


@requirement("OPS-371")
async def test_an_import_that_fails_at_the_start_is_told_to_who_waits_for_it() -> None:
    doors = LateDoors(["gateway"], never_made, at_start=True, load=refuses)
    async with doors.running():
        assert not doors.ready
        doors.begin()
        with pytest.raises(ConfigError, match=r"The MCP doors cannot be opened \(no such thing\)"):
            await doors.wait_ready()
        assert not doors.ready


@requirement("OPS-370")
async def test_without_a_request_nothing_is_imported_and_nothing_is_waited_for() -> None:
    doors, loaded = waiting_doors()
    async with doors.running():
        doors.begin()
        await doors.wait_ready()
        assert doors.ready
        await asyncio.sleep(0)
        assert loaded == []
        assert [(each.kind, each.held) for each in doors.session_counts()] == [("sessions_gateway", 0)]


@requirement("OPS-370")
async def test_a_stopping_service_begins_no_import() -> None:
    doors, loaded = waiting_doors()
    async with doors.running():
        doors.end_listening()
        assert await doors.find("gateway") is None
        assert loaded == []

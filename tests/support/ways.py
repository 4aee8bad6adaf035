"""The ways of a request of an MCP client through the service: ``direct``, past the SDK's server where that can be, or
``sdk``, through it. ``WAY=sdk`` sends all tests that way; a file that uses ``both_ways`` runs on both."""

import os
from collections.abc import Mapping
from typing import Any

import pytest

_VARIABLE = "WAY"


def on_the_way(settings: Mapping[str, Any]) -> dict[str, Any]:
    """*settings*, for the way of this run where they name none."""
    if os.environ.get(_VARIABLE) != "sdk":
        return dict(settings)
    return {**settings, "mcp": {"direct": False, **settings.get("mcp", {})}}


def number_of_way() -> int:
    """For what the two ways must not share."""
    return int(os.environ.get(_VARIABLE) == "sdk")


@pytest.fixture
def by_the_sdk(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The methods of the requests of the handshake era that the SDK's server answers."""
    from app.mcp.sdk import SdkSide

    methods: list[str] = []
    answer = SdkSide.answer

    async def noted(side: Any, message: Mapping[str, Any], *more: Any) -> Any:
        methods.append(message["method"])
        return await answer(side, message, *more)

    monkeypatch.setattr(SdkSide, "answer", noted)
    return methods


@pytest.fixture(params=["direct", "sdk"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    way: str = request.param
    monkeypatch.setenv(_VARIABLE, way)
    return way

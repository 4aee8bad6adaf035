import pytest


@pytest.fixture(scope="session", params=[False, True], ids=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    """Both loops: the service runs on uvloop, embedders mostly on asyncio, and their transports differ."""
    return "asyncio", {"use_uvloop": request.param}

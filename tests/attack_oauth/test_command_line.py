"""What the commands say where each caller has an account of its own, and to whom a key is sent."""

from pathlib import Path

import pytest

from tests.support.process import outcome
from tests.support.requirement import requirement

_CONFIG = """
server: {public_url: "https://gate.example.com"}
upstreams:
  - {name: linear, url: "http://127.0.0.1:1/mcp", credentials: user}
"""


@pytest.mark.xfail(strict=True, reason="the mend is that of shared logins, which such an upstream does not use")
@requirement("ACCESS-198")
@pytest.mark.parametrize("command", ["login", "logout"])
async def test_a_login_of_users_is_mended_by_the_url_of_the_gate(command: str, tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text(_CONFIG)
    code, _, said = await outcome("app", command, "linear", cwd=tmp_path, env={"WG_URL": "", "WG_KEY": ""})
    assert code == 1
    assert "--url" in said
    assert "write oauth: {}" not in said


@pytest.mark.xfail(strict=True, reason="check does not ask a server with credentials: user at all")
@requirement("ACCESS-180")
async def test_check_tells_of_a_server_with_logins_of_users_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text(_CONFIG)
    _, shown, said = await outcome("app", "check", cwd=tmp_path)
    assert "refuses connections" in shown + said

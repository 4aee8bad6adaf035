"""The words of the commands where each caller has an account of its own, and to whom a key is sent."""

from pathlib import Path

import pytest

from tests.support.hosted_server import HostedServer
from tests.support.process import outcome
from tests.support.requirement import requirement

_CONFIG = """
server: {public_url: "https://gate.example.com"}
upstreams:
  - {name: linear, url: "http://127.0.0.1:1/mcp", credentials: user}
"""


@requirement("ACCESS-198", "ACCESS-228")
@pytest.mark.parametrize("command", ["login", "logout"])
async def test_a_login_of_users_is_mended_by_the_url_of_the_gate(command: str, tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text(_CONFIG)
    code, _, said = await outcome("app", command, "linear", cwd=tmp_path, env={"WG_URL": "", "WG_KEY": ""})
    assert code == 1
    assert f"wicketgate {command} linear --url https://gate.example.com" in said
    assert "write oauth: {}" not in said


@requirement("ACCESS-228")
async def test_connections_lead_to_the_gate_where_callers_have_accounts_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text(_CONFIG)
    code, shown, said = await outcome("app", "connections", cwd=tmp_path, env={"WG_URL": "", "WG_KEY": ""})
    assert code == 0
    assert (
        "linear: each caller has an account of its own: wicketgate connections --url https://gate.example.com" in shown
    )
    assert "No upstream" not in said


@requirement("ACCESS-229")
async def test_check_tells_of_a_server_with_logins_of_users_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text(_CONFIG)
    code, shown, said = await outcome("app", "check", cwd=tmp_path)
    assert code == 1
    assert "refuses connections" in shown + said


@requirement("ACCESS-134")
async def test_check_tells_once_why_an_issuer_cannot_be_reached(tmp_path: Path) -> None:
    (tmp_path / "wicketgate.yaml").write_text(
        'server: {public_url: "https://gate.example.com"}\n'
        'auth: {issuers: [{name: corp, issuer: "http://127.0.0.1:1"}]}\n'
    )
    code, shown, said = await outcome("app", "check", cwd=tmp_path)
    assert code == 1
    assert (shown + said).count("refuses connections") == 1
    assert "issuer corp (http://127.0.0.1:1)" in shown + said


@requirement("ACCESS-229")
async def test_check_is_content_with_servers_that_wait_for_a_first_account(tmp_path: Path) -> None:
    async with HostedServer().running() as server:
        text = _CONFIG.replace("http://127.0.0.1:1/mcp", server.url)
        (tmp_path / "wicketgate.yaml").write_text(text)
        code, shown, said = await outcome("app", "check", cwd=tmp_path)
        assert "its tools are those of the first account that a caller connects" in shown
        assert "no tool to call" not in shown + said
        assert code == 0, shown + said

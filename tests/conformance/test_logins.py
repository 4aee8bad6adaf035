"""The meaning of a run of ``make test-login``; the run itself needs Node and packages."""

import json
import re
from typing import Any

import pytest
import yaml
from joserfc import jwt
from joserfc.jwk import RSAKey

from conformance.environments import PROJECTS
from conformance.issuer import minted
from conformance.judge import read_expected
from conformance.run_logins import CLIENTS, COLUMNS, NOTES, of_login, of_recovery, of_step_up, of_two_steps
from tests.support.requirement import requirement

AT = "http://127.0.0.1:1/mcp"


def code(client: str = "c1", resource: str = AT, scope: str = "tools tools.run") -> dict[str, Any]:
    return {"did": "authorization_code", "client": client, "resource": resource, "scope": scope}


REGISTERED = {"did": "registered", "client": "c1"}
RENEWED = {**code(), "did": "refresh_token"}
REFUSED = {"did": "refused", "where": "grant", "error": "invalid_grant"}


def bad(checks: Any) -> list[str]:
    return [check.id for check in checks if not check.good]


@requirement("ACCESS-200")
@pytest.mark.parametrize(
    ("deeds", "document", "wrong"),
    [
        ([REGISTERED, code()], "", []),
        ([code("https://c/x.json")], "https://c/x.json", []),
        ([REGISTERED, code()], "https://c/x.json", ["registration"]),
        ([code("c2")], "", ["registration", "client"]),
        ([REGISTERED, code(), code()], "", ["one-code"]),
        ([REGISTERED, code(resource="http://127.0.0.1:1")], "", ["resource"]),
        ([], "", ["one-code", "registration"]),
    ],
)
def test_a_login_counts_as_the_issuer_saw_it(deeds: list[dict[str, Any]], document: str, wrong: list[str]) -> None:
    assert bad(of_login(deeds, AT, document)) == wrong


@requirement("ACCESS-200")
def test_a_refused_token_is_replaced_without_a_loop() -> None:
    assert bad(of_recovery([RENEWED])) == bad(of_recovery([REFUSED, code()])) == []
    assert bad(of_recovery([])) == ["new-token"]
    assert bad(of_recovery([code()] * 4)) == ["no-loop"]


@requirement("ACCESS-200")
def test_a_step_up_is_one_login_with_all_scopes() -> None:
    few = code(scope="tools")
    assert bad(of_step_up([code()])) == bad(of_two_steps([REGISTERED, few, code()])) == []
    assert bad(of_step_up([few])) == bad(of_step_up([few, code()])) == ["step-up"]
    assert bad(of_two_steps([few])) == bad(of_two_steps([code()])) == ["two-steps"]


@requirement("ACCESS-200")
def test_an_issuer_signs_what_it_would_not_issue() -> None:
    key = RSAKey.generate_key(2048, {"kid": "signs"})
    claims = jwt.decode(minted(key, "http://i", AT, ["a", "b"], ends_in_s=-60), key).claims
    assert (claims["iss"], claims["aud"], claims["scope"]) == ("http://i", AT, "a b")
    assert claims["exp"] < claims["iat"] + 600


@requirement("ACCESS-200")
def test_packages_of_node_are_pinned_by_hashes_and_without_addresses() -> None:
    locks = list(PROJECTS.glob("*/package-lock.json"))
    assert "oidc-provider" in {lock.parent.name for lock in locks}
    for lock in locks:
        text = lock.read_text("utf-8")
        packages = {path: entry for path, entry in json.loads(text)["packages"].items() if path}
        assert not [path for path, entry in packages.items() if not entry["integrity"].startswith("sha512-")]
        assert not re.search(r'"resolved"', text)


@requirement("ACCESS-200")
def test_notes_name_rows_and_cells_that_there_are() -> None:
    rows = {"door", *(f"{client.name}/{client.era}" for client in CLIENTS)}
    for entry in read_expected(yaml.safe_load(NOTES.read_text("utf-8"))["expected"]):
        assert set(entry.where) <= rows
        assert {what.partition(":")[0] for what in entry.what} <= {"door", *COLUMNS}

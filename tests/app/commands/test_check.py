"""``wicketgate check`` as a user runs it, over functions of a package, documents on disk and programs that fail."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from app.cli import cli
from app.commands.check import CheckProgress
from tests.support.issuer import RSA
from tests.support.python_upstream import python_upstream
from tests.support.requirement import requirement
from tests.support.threaded_server import threaded_server
from tests.support.warm_server import warm
from wicketgate.gateway.upstream_reports import UpstreamReport

GOOD = {"get": {"operationId": "list_pets", "summary": "Lists the pets.", "responses": {}}}
BAD = {"get": {"operationId": "broken", "parameters": [{"in": "nowhere", "name": "x"}], "responses": {}}}


def document(name: str, **paths: Any) -> dict[str, Any]:
    """An upstream over an OpenAPI document of these paths."""
    Path(f"{name}.json").write_text(
        json.dumps({"openapi": "3.1.0", "paths": {f"/{path}": item for path, item in paths.items()}})
    )
    return {"name": name, "openapi": f"{name}.json", "base_url": "http://127.0.0.1:9"}


def package(name: str, tools: int) -> dict[str, Any]:
    """An upstream over functions of Python."""
    functions = ((f"tool_{number}", "", f"Gives the number {number}.") for number in range(tools))
    return python_upstream(Path.cwd(), *functions, name=name)


def check(*words: str, upstreams: list[dict[str, Any]], **sections: Any) -> Result:
    Path("wicketgate.yaml").write_text(yaml.safe_dump({"upstreams": upstreams, **sections}))
    result = CliRunner().invoke(cli, ["check", *words])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@requirement("OPS-143")
def test_a_server_that_may_use_more_of_clients_is_named() -> None:
    gone: dict[str, Any] = {"command": ["/no/such/program"]}
    upstreams: list[dict[str, Any]] = [
        {"name": "writer", **gone, "forward": ["sampling", "roots"]},
        {"name": "plain", **gone},
        {"name": "off", **gone, "forward": ["roots"], "enabled": False},
    ]
    (line,) = [line for line in check(upstreams=upstreams).stdout.splitlines() if "forward" in line]
    assert line.startswith("writer: may use the models of clients (sampling) and the names of clients' folders (roots)")


@requirement("OPS-421")
def test_careless_settings_are_shown_and_do_not_fail_the_check() -> None:
    server = {"trusted_proxies": ["0.0.0.0/0"], "allowed_origins": ["*"]}
    result, as_json = (check(*words, upstreams=[package("local", 1)], server=server) for words in ((), ("--json",)))
    shown = [line for line in result.stdout.splitlines() if line.startswith("careless: ")]
    assert [line.split(":")[1].strip() for line in shown] == ["server.trusted_proxies", "server.allowed_origins"]
    assert (result.exit_code, [f"careless: {line}" for line in json.loads(as_json.stdout)["careless"]]) == (0, shown)


@requirement("OPS-383")
def test_rules_that_nobody_can_approve_are_named() -> None:
    digest = "0" * 64
    keys: list[dict[str, Any]] = [
        {"id": "ann", "sha256": digest, "actor": "ann", "permissions": ["tools:*"], "roles": ["lead"]},
        {"id": "ben", "sha256": "1" * 64, "actor": "ben", "permissions": ["tools:*"], "roles": ["on-call"]},
    ]
    access = [
        {"match": f"local:{name}", "approval": {"by": by, "count": count}}
        for name, by, count in (("a", "role:lead", 1), ("b", "role:lead", 2), ("c", "role:chief", 1))
    ]
    result = check(upstreams=[package("local", 2)], auth={"keys": keys}, access=access)
    found = [line for line in result.stdout.splitlines() if "approve" in line]
    assert found == [
        "warning: access[1] (local:b): no 2 actors can approve its calls as role:lead",
        "warning: access[2] (local:c): nobody can approve its calls as role:chief",
    ]
    assert "key: ann (ann, roles lead): " in result.stdout


@requirement("OPS-105")
def test_each_upstream_is_reported_as_it_comes_and_again_in_a_table() -> None:
    result = check(upstreams=[package("local", 2), {"name": "gone", "command": ["/no/such/program"]}])
    assert result.exit_code == 1
    assert "local: ready, 2 tools, " in result.stderr
    assert "gone: down, " in result.stderr
    assert "local: ready" not in result.stdout, "said twice is enough: as it comes, and in the table"
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["upstream", "state", "tools", "left", "out", "seconds"] in rows
    assert [row[:4] for row in rows if row[:1] in (["local"], ["gone"])] == [
        ["local", "ready", "2", "0"],
        ["gone", "down", "0", "0"],
    ]


@requirement("OPS-105")
def test_tools_have_their_descriptions_and_many_of_them_do_not_bury_the_faults() -> None:
    upstreams = [package("local", 25), document("pets", good=GOOD, bad=BAD)]
    result = check(upstreams=upstreams)
    lines = result.stdout.splitlines()
    tools = [line for line in lines if line.startswith("  local:")]
    assert len(tools) == 20
    assert tools[0].split(maxsplit=1)[1] == "Gives the number 0."
    assert "  ... 5 more; wicketgate check --all lists them" in lines
    table = next(number for number, line in enumerate(lines) if line.split()[:2] == ["upstream", "state"])
    fault = next(number for number, line in enumerate(lines) if line.startswith("left out: pets: "))
    assert table < fault == len(lines) - 2
    every = check("--all", upstreams=upstreams).stdout.splitlines()
    assert sum(line.startswith("  local:") for line in every) == 25


@requirement("OPS-106")
@pytest.mark.parametrize(("bad", "named"), [(1, 1), (30, 20)])
def test_operations_that_were_left_out_are_counted_fail_the_check_and_the_first_are_named(bad: int, named: int) -> None:
    paths = {f"bad_{number}": BAD for number in range(bad)}
    result = check(upstreams=[document("pets", good=GOOD, **paths)])
    lines = result.stdout.splitlines()
    assert (result.exit_code, lines[-1]) == (1, f"1 of 1 upstreams connected, 1 tools, {bad} left out")
    assert sum(line.startswith("left out: pets: GET /bad_") for line in lines) == named
    assert (f"left out: pets: {bad - named} more" in result.stdout) == (bad > named)


@requirement("UP-95")
def test_credentials_that_a_document_asks_for_and_that_are_missing_are_a_note() -> None:
    pets = document("pets", good={"get": {**GOOD["get"], "security": [{"nobody": []}]}})
    result = check(upstreams=[pets])
    assert "pets: 1 operation asks for nobody, which it does not declare; the gate cannot send it" in result.stdout
    assert result.exit_code == 0


@requirement("OPS-106", "UP-94")
def test_a_server_without_a_tool_that_can_be_used_is_named_and_fails_the_check() -> None:
    result = check(upstreams=[package("local", 1), package("empty", 0), document("pets", bad=BAD)])
    assert result.exit_code == 1
    assert "empty: ready, but without a tool that can be used: it lists none" in result.stdout
    reason = "its document has no usable operation (pets.json): GET /bad: "
    assert f"pets: down ({reason}" in result.stdout
    assert "left out: pets: GET /bad: " in result.stdout
    assert "local: ready, but" not in result.stdout


@requirement("OPS-106")
def test_a_server_that_offers_other_things_than_tools_is_fine() -> None:
    command = warm("tests.support.feature_server")
    server = {"name": "rec", "command": command, "cwd": str(Path(__file__).parents[3])}
    plugins = {"middleware": {"rec": [{"handler": "tool_manager", "config": {"tools": []}}]}}
    result = check(upstreams=[server, package("local", 1)], plugins=plugins)
    assert "rec: no tools, but resources" in result.stdout
    assert result.exit_code == 0, result.output
    alone = check(upstreams=[server], plugins=plugins)
    assert (alone.exit_code, "no upstream has a tool to call" in alone.stdout) == (1, True)


@requirement("OPS-107")
def test_what_a_server_writes_before_it_ends_stands_once_below_its_line(
    tmp_path: Path,
) -> None:
    """The other server answers when the first was started twice, so its words came twice too."""
    starts = tmp_path / "starts"
    crash = f"echo . >> {starts}; echo very special words >&2; exit 3"
    wait = f"while [ $(wc -l < {starts}) -lt 3 ]; do sleep 0.05; done; exit 1"
    starts.touch()
    servers = [{"name": "crash", "command": ["sh", "-c", crash]}, {"name": "late", "command": ["sh", "-c", wait]}]
    result = check(upstreams=servers)
    assert starts.read_text().count(".") >= 3
    said = [line for line in result.output.splitlines() if "very special words" in line]
    assert len(said) == 1 and said[0].startswith("    ")
    lines = result.stderr.splitlines()
    assert lines[lines.index(said[0]) - 1].startswith(("crash: down", "    crash"))


@requirement("OPS-107")
def test_a_warning_that_comes_before_its_server_waits_for_it_and_repeats_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = CheckProgress(["a", "a-b"])

    def warn(message: str, level: int = logging.WARNING) -> None:
        lines.emit(logging.LogRecord("wicketgate.upstream", level, "", 0, message, None, None))

    warn("a-b: one")
    warn("a-b: it failed")
    warn("a: still starting after 5 s", logging.INFO)
    warn("a: of no interest", logging.INFO)
    warn("of nobody")
    assert capsys.readouterr().err == "a: still starting after 5 s\nof nobody\n"
    lines.report(UpstreamReport("a-b", "down", "it failed", 0, 1.26))
    warn("a-b: one")
    warn("a-b: two")
    assert capsys.readouterr().err == "a-b: down, 1.3 s: it failed\n    a-b: one\n    a-b: two\n"
    warn("a: three")
    lines.end()
    assert capsys.readouterr().err == "    a: three\n"


@requirement("OPS-110")
def test_json_is_one_document_with_everything_and_nothing_else_on_stdout() -> None:
    upstreams = [package("local", 25), document("pets", good=GOOD, bad=BAD), {**package("off", 1), "enabled": False}]
    keys = [{"id": "k", "sha256": "0" * 64, "actor": "ann", "permissions": ["tools:*"]}]
    result = check("--json", "--model", upstreams=upstreams, auth={"keys": keys})
    found = json.loads(result.stdout)
    assert (result.exit_code, found["ok"], found["config"]) == (1, False, "wicketgate.yaml")
    local, pets = found["upstreams"]
    assert sorted(local) == ["error", "left_out", "name", "quarantined", "seconds", "state", "tools"]
    assert (local["name"], local["state"], len(local["tools"]), local["left_out"]) == ("local", "ready", 25, [])
    assert local["tools"][0]["description"] == "Gives the number 0."
    assert isinstance(local["seconds"], float)
    assert len(pets["left_out"]) == 1 and pets["left_out"][0].startswith("GET /bad: ")
    assert found["models"][0]["provider"] == "scripted"
    assert found["keys"] == [{"id": "k", "actor": "ann", "roles": [], "tools": 26}]
    assert found["notes"][0] == "off: disabled"
    assert found["summary"] == "2 of 2 upstreams connected, 26 tools, 1 left out"
    assert found["faults"] == [f"left out: pets: {pets['left_out'][0]}"]
    assert "local: ready" in result.stderr


@requirement("ACCESS-134")
def test_each_issuer_is_asked_for_its_keys(tmp_path: Path) -> None:
    keys = json.dumps({"keys": [RSA.as_dict(private=False)]}).encode()
    documents = {"/keys": (200, "", keys), "/none": (200, "", b'{"keys": []}')}
    with threaded_server(lambda path: documents.get(path, (404, "", b""))) as port:
        url = f"http://127.0.0.1:{port}"
        entries = [
            {"name": "good", "issuer": url, "jwks_uri": f"{url}/keys"},
            {"name": "empty", "issuer": f"{url}/e", "jwks_uri": f"{url}/none"},
            {"name": "gone", "issuer": f"{url}/gone"},
        ]
        sections = {"server": {"public_url": "https://gate.example"}, "auth": {"issuers": entries}}
        result = check(upstreams=[package("local", 1)], **sections)
        as_json = json.loads(check("--json", upstreams=[package("local", 1)], **sections).stdout)
    assert result.exit_code == 1
    assert f"issuer: good ({url}): 1 keys" in result.stdout
    assert f"issuer empty ({url}/e): it has no key that can be used" in result.stdout
    assert f"issuer gone ({url}/gone): it publishes no document about itself" in result.stdout
    assert [(each["name"], each["keys"]) for each in as_json["issuers"]] == [("good", 1), ("empty", 0), ("gone", None)]


@requirement("UP-193")
def test_keys_are_said_to_have_nothing_to_exchange() -> None:
    way = {"client_id": "gate", "client_secret": "s"}
    upstream = {"name": "files", "url": "http://127.0.0.1:9/mcp", "credentials": "exchange", "oauth": {"exchange": way}}
    issuer = {"name": "corp", "issuer": "http://127.0.0.1:9"}
    sections = {"server": {"public_url": "https://gate.example"}, "auth": {"issuers": [issuer]}}
    shown = " ".join(check(upstreams=[upstream], **sections).output.split())
    assert "the first caller with a token of issuer corp, and callers with keys cannot use it" in shown


@requirement("OPS-383")
def test_a_key_is_made_with_roles() -> None:
    made = CliRunner().invoke(cli, ["key", "new", "--actor", "ann", "--role", "lead", "--role", "on-call", "--json"])
    assert json.loads(made.stdout)["entry"]["roles"] == ["lead", "on-call"]
    refused = CliRunner().invoke(cli, ["key", "new", "--actor", "ann", "--role", " "])
    assert (refused.exit_code, refused.stdout) == (2, "")

"""Mistakes as people make them on their first day, each with the words that they get (OPS-125 to OPS-128).

A message says what was tried, what came back, and which setting or command mends it. Each row has a pattern of the
message; PORT, TLS_PORT and FILE stand for what differs between runs. Mistakes inside a configuration are in
``tests/config/test_mistakes.py``.
"""
# ruff: noqa: E501

import asyncio
import json
import logging
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import chdir
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from click.testing import CliRunner

from app.cli import cli, main
from app.main import create_app
from tests.support.certificates import Authority
from tests.support.requirement import requirement
from tests.support.service import KEY
from tests.support.threaded_server import threaded_server
from wicketgate.access.identity import hash_key
from wicketgate.config.settings import Settings

GOOD = "upstreams: [{name: p, python: 'tests.support.python_tools:registry'}]\n"
TOOL = "p:due"


KEYS = yaml.safe_dump(
    {"auth": {"keys": [{"id": each, "sha256": hash_key(each), "actor": each} for each in ("ann", "ben")]}}
)


# The files that there are in the folder of the command lines; None is a folder.
FILES: dict[str, str | bytes | None] = {
    "good.yaml": GOOD,
    "empty.yaml": "",
    "words.yaml": "time server\n",
    "folder.yaml": None,
    "binary.yaml": b"\xff\xfe\x00",
    "types.yaml": "server: {port: many}\n",
    "keys.yaml": KEYS + GOOD,
    "none.yaml": "upstreams: []\n",
}

# Command line, variables, exit code, pattern.
COMMAND_LINES: list[tuple[str, Mapping[str, str], int, str]] = [
    # Files
    ("check --config gone.yaml", {}, 1, r"Cannot read .* gone\.yaml: there is no such file; wicketgate init --config gone\.yaml writes one"),
    ("check", {"WICKETGATE_CONFIG": "gone.yaml"}, 1, r"gone\.yaml, named by WICKETGATE_CONFIG\n.*there is no such file; wicketgate init"),
    ("check --config empty.yaml", {}, 1, r"empty\.yaml is empty; to start with the defaults, remove it"),
    ("check --config words.yaml", {}, 1, r"words\.yaml must hold sections such as 'server:' and 'upstreams:'"),
    ("check --config folder.yaml", {}, 2, r"'--config': File 'folder\.yaml' is a directory"),
    ("check --config binary.yaml", {}, 1, r"binary\.yaml is not UTF-8 text"),
    ("check --config types.yaml", {}, 1, r"server\.port: must be a whole number"),
    ("check --config none.yaml", {}, 1, r"There are no upstreams, .*wicketgate init .*wicketgate import"),
    # Command lines
    ("doctor", {}, 2, r"Try 'wicketgate --help' for help\.\n\nError: No such command 'doctor'"),
    ("check --confg good.yaml", {}, 2, r"No such option '--confg'.*'--config'"),
    ("check good.yaml", {}, 2, r"unexpected extra argument \(good\.yaml\)\nIs it the configuration\? Then write --config good\.yaml"),
    ("--config good.yaml check", {}, 2, r"No such option '--config'\.\nPut options after the command"),
    ("browse time", {}, 2, r"\./wicketgate\.yaml does not exist: start a gate with --config FILE, or ask a running one with --url URL"),
    ("browse time --url localhost:8080", {}, 1, r"--url \(or WG_URL\) is no URL of a service; it looks like http://127\.0\.0\.1:8080"),
    ("browse time --url http://a\x7fb", {}, 1, r"--url \(or WG_URL\) is no URL of a service"),
    ("browse time --url http://127.0.0.1:1", {}, 1, r"it refuses connections \(http://127\.0\.0\.1:1\).* --url .*wicketgate serve starts one"),
    ("browse time", {"WG_URL": "http://no-such-host.invalid"}, 1, r"its name does not resolve \(http://no-such-host\.invalid\): correct the host in --url \(or WG_URL\)"),
    ("browse time --url https://127.0.0.1:PORT", {}, 1, r"it speaks http, not https \(https://127\.0\.0\.1:\d+\): write http:// in --url"),
    ("browse time --url http://127.0.0.1:PORT/401", {}, 1, r"HTTP 401\): a key is missing; give it by --key, or in WG_KEY"),
    ("browse time --url http://127.0.0.1:PORT/401 --key wrong", {}, 1, r"HTTP 401\): the service does not know this key"),
    ("browse /nowhere --config good.yaml", {}, 1, r"PATH_NOT_FOUND: Nothing is at this path\. Browse '/'"),
    ("execute p:pictre --config good.yaml", {}, 1, r"(?m)^wicketgate: no such tool: p:pictre; wicketgate browse WORDS finds ids\nDid you mean p:picture"),
    (f"execute {TOOL} start=today --config good.yaml", {}, 2, r"""ARGS is not JSON \(line 1, column 1\); it looks like '\{"name": "value"\}', in single quotes"""),
    (f"execute {TOOL} {{}} --config good.yaml", {}, 1, r"(?s)ARGS_INVALID: .*start"),
    ("view art_1 head --config good.yaml", {}, 2, r"""SELECTOR is not JSON .*; it looks like '\{"type": "head", "chars": 2000\}'"""),
    ("view art_1 --config good.yaml", {}, 1, r"VIEW_FAILED: No such artifact, or it has expired\. Run the tool again"),
    ("explain p:due --config good.yaml", {}, 2, r"auth\.keys is empty, so no actor is known; give --actor NAME --permission"),
    ("explain p:due --config keys.yaml", {}, 2, r"auth\.keys has keys of ann, ben; say for whom with --actor"),
    ("explain p:due --key ann --config good.yaml", {}, 2, r"auth\.keys has no key with the id ann"),
    ("explain p:due --actor me --permission role:dev --config good.yaml", {}, 2, r"role:dev is a role, not a permission: put dev under roles of a key \(key new --role dev\)"),
    ("connect curser", {}, 2, r"'\[CLIENT\]': 'curser' is not known\. Did you mean cursor\?"),
    ("explain p:due --actor me --config good.yaml", {}, 2, r"auth\.keys has no key of me; give its permissions with --permission"),
    ("lock --diff --all --config good.yaml", {}, 2, r"--diff only shows differences; give it, or --accept and --all"),
    ("lock --accept p:due --lock new.lock --config good.yaml", {}, 1, r"There is no new\.lock yet\. Make it with: wicketgate lock"),
    ("key new", {}, 2, r"Missing option '--actor'"),
    ("key new --actor Ada,Bob", {}, 2, r"actor: must be letters, digits and \._@:/-, at most 128"),
    ("key new --actor me --id Mine", {}, 2, r"id: must be lower-case letters, digits and hyphens"),
    ("key new --actor me --expires-in soon", {}, 2, r"not a duration: 'soon'\. Write 90d, 12h or 30m"),
    ("key new --actor me --expires-in 0d", {}, 2, r"not a duration: '0d'\. Write 90d, 12h or 30m"),
    ("key new --actor me --expires-in 1d --expires-at 2030-01-01T00:00:00Z", {}, 2, r"give --expires-at or --expires-in, not both"),
    ("key new --actor me --expires-at 2030-01-01", {}, 2, r"expires_at: has no zone: write 2027-01-31T00:00:00Z"),
    ("key new --actor me --expires-at 2030-01-01T00:00:00Z --not-before 2031-01-01T00:00:00Z", {}, 2, r"expires_at must be after not_before"),
    ("key new --actor me --expires-at tomorrow", {}, 2, r"expires_at: must be a time as in ISO 8601, .*2027-01-31T00:00:00Z"),
    ("mcp --face strict --config good.yaml", {}, 2, r"'strict' is not one of 'gateway', 'transparent', 'registry', 'namespaced'"),
    ("completion powershell", {}, 2, r"'powershell' is not one of 'bash', 'zsh', 'fish'"),
    # The port
    ("serve --config good.yaml --port PORT", {}, 1, r"Cannot listen on 127\.0\.0\.1 port \d+: Address already in use\. Choose another with --port or server\.port"),
    ("serve --config good.yaml --host 0.0.0.0", {}, 1, r"--host: auth\.keys is empty, .*make a key with: wicketgate key new"),
    ("serve --watch", {}, 2, r"--watch needs --config: there is no \./wicketgate\.yaml to watch"),
]  # fmt: skip

# The entry of an upstream, and the pattern of what check says of it.
CONNECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"url": "http://127.0.0.1:1/mcp"}, r"it refuses connections \(http://127\.0\.0\.1:1\): start it, or correct the port in url"),
    ({"url": "http://no-such-host.invalid/mcp"}, r"its name does not resolve \(http://no-such-host\.invalid\): correct the host in url"),
    ({"url": "https://127.0.0.1:PORT/mcp"}, r"it speaks http, not https \(https://127\.0\.0\.1:\d+\): write http:// in url"),
    ({"url": "http://127.0.0.1:TLS_PORT/mcp"}, r"\(http://127\.0\.0\.1:\d+\): (?:if it speaks https, )?write https:// in url"),
    ({"url": "https://127.0.0.1:TLS_PORT/mcp"}, r"a certificate that is not trusted here .*: name the file of its certificate authority in network\.ca_file"),
    ({"url": "http://127.0.0.1:PORT/401"}, r"it wants a credential \(HTTP status 401\) .*: give it one in headers \(Authorization\) or by oauth"),
    ({"url": "http://127.0.0.1:PORT/404"}, r"no MCP endpoint at this path \(HTTP status 404\) .*: correct the path in url, often /mcp; or transport: sse"),
    ({"url": "http://127.0.0.1:PORT/500"}, r"it gave no MCP answer \(HTTP status 500\) .*: look at the log of that server"),
    ({"url": "http://127.0.0.1:PORT/page"}, r"it answers with a web page, not with MCP .*: correct the path in url, often /mcp"),
    ({"url": "http://127.0.0.1:PORT/json"}, r"not a valid MCP result .*: is it an MCP server\? correct the path in url"),
    ({"command": ["no-such-program"]}, r"the command was not found \(no-such-program\): it is not on the PATH of the gate; install it, or write its full path"),
    ({"command": ["/no/such/program"]}, r"the command was not found \(/no/such/program\): there is no such file; correct command"),
    ({"command": ["./script"]}, r"the command may not be run \(\./script\): make it executable \(chmod \+x\), or name its interpreter"),
    ({"command": ["./no-first-line"]}, r"the command cannot be run .*#! line; name its interpreter first in command"),
    ({"command": ["./odd-first-line"]}, r"the command cannot be run .*: the program that its first line names \(#!\) does not exist"),
    ({"command": ["sh", "-c", "echo boom >&2; exit 3"]}, r"it ended with code 3 before it was ready\n +NAME wrote before it ended: boom"),
    ({"command": ["sh", "-c", "echo Listening on port 3000"]}, r"it ended with code 0 before it was ready\n(?: .*\n)* +NAME writes something to its stdout that is not MCP"),
    ({"command": ["cat"], "cwd": "/no/such/folder"}, r"its working directory was not found \(cat\): correct cwd, /no/such/folder"),
    ({"openapi": "gone.yaml"}, r"its document was not found \(gone\.yaml\): correct openapi; a relative path counts from the folder"),
    ({"openapi": "broken.yaml"}, r"neither JSON nor YAML: line 2, column 9: not valid YAML: a value is missing, or a bracket is not closed"),
    ({"openapi": "empty.yaml"}, r"the document is empty"),
    ({"openapi": "swagger.yaml"}, r"the document is Swagger 2\.0; convert it to OpenAPI 3 first"),
    ({"openapi": "other.yaml"}, r"the document does not say 'openapi: 3\.0', '3\.1' or '3\.2'"),
    ({"openapi": "paths.yaml"}, r"the document names no http or https server; set base_url"),
    ({"openapi": "no-paths.yaml", "base_url": "http://127.0.0.1:1"}, r"NAME: down, .*: its document has no usable operation \(no-paths\.yaml\): it describes none"),
    ({"openapi": "."}, r"its document is not a file \(\.\): openapi must name the file itself"),
    ({"openapi": "http://127.0.0.1:PORT/page"}, r"its document is a web page .*: openapi must name the JSON or YAML itself, often /openapi\.json"),
    ({"openapi": "http://127.0.0.1:PORT/404"}, r"the server of its document answered 404 .*: correct the path; openapi must name"),
    ({"python": "no_such_module_here:registry"}, r"the module no_such_module_here cannot be imported \(ModuleNotFoundError\): install it beside this program, or name its folder in cwd"),
    ({"python": "tests.support.python_tools:tools"}, r"the module tests\.support\.python_tools has no tools: python names the module and its registry"),
]  # fmt: skip

CHAT = {"messages": [{"role": "user", "content": "hi"}], "metadata": {"correlation_id": "req_1"}}
BEARER = {"Authorization": f"Bearer {KEY}"}

# Method, path, headers, body, status, pattern of the answer, pattern of the log.
REQUESTS: list[tuple[str, str, Mapping[str, str], object, int, str, str]] = [
    ("POST", "/engine/chat", {}, CHAT, 401, r"No credentials provided", ""),
    ("POST", "/engine/chat", {"Authorization": "Bearer wrong"}, CHAT, 401, r"Invalid credentials", ""),
    ("POST", "/engine/chat", {"Authorization": f"Bearer {hash_key(KEY)}"}, CHAT, 401, r"Invalid credentials", ""),
    ("POST", "/engine/chat", {"Authorization": KEY}, CHAT, 401, r"No credentials provided", ""),
    ("POST", "/engine/chat", {"X-Api-Key": KEY}, CHAT, 401, r"No credentials provided", ""),
    ("POST", "/mcp", {}, {}, 401, r"No credentials provided", ""),
    ("GET", "/nowhere", {}, None, 401, r"No credentials provided", ""),
    ("POST", "/v1/chat/completions", BEARER, CHAT, 404, r"chats are at /engine/chat, MCP at /mcp, tools at /operations", ""),
    ("GET", "/engine/chat", BEARER, None, 405, r"does not take that method; it takes POST", ""),
    ("POST", "/engine/chat", {**BEARER, "Host": "gate.example"}, CHAT, 421, r"server\.allowed_hosts", r"Host 'gate\.example' was refused; .* add it to server\.allowed_hosts"),
    ("POST", "/engine/chat", {**BEARER, "Origin": "https://page.example"}, CHAT, 403, r"server\.allowed_origins", r"Origin 'https://page\.example' was refused; .* add it to server\.allowed_origins"),
    ("POST", "/engine/chat", BEARER, b"hello", 400, r"not valid JSON", ""),
    ("POST", "/engine/chat", BEARER, b'{"messages": [', 400, r"not valid JSON", ""),
    ("POST", "/engine/chat", BEARER, {"messages": CHAT["messages"]}, 400, r"must include metadata\.correlation_id", ""),
    ("POST", "/engine/chat", BEARER, {"message": "hi"}, 400, r"must include a messages array with at least one message", ""),
    ("POST", "/operations/call", BEARER, {}, 422, r"missing required field: operation", ""),
    ("POST", "/mcp", {**BEARER, "Accept": "application/json"}, {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, 406, r"must accept both application/json and text/event-stream", ""),
    ("POST", "/mcp", BEARER, b"hello", 400, r"not valid JSON", ""),
]  # fmt: skip


def answer(path: str) -> tuple[int, str, bytes]:
    """Answers by the first part of the path: a status, a page, or JSON; no MCP server."""
    return {
        "401": (401, "application/json", b"{}"),
        "500": (500, "text/plain", b"oops"),
        "page": (200, "text/html", b"<html>Welcome</html>"),
        "json": (200, "application/json", b'{"hello": "world"}'),
    }.get(path.split("/")[1], (404, "text/plain", b"nothing here"))


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    authority = Authority(tmp_path_factory.mktemp("authority"))
    with threaded_server(answer, authority.serving("127.0.0.1")) as tls, threaded_server(answer) as plain:
        yield {"TLS_PORT": tls, "PORT": plain}


def filled(text: str, ports: Mapping[str, str]) -> str:
    for name, port in ports.items():
        text = text.replace(name, port)
    return text


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variables of the developer's."""
    for name in list(os.environ):
        if name.startswith(("WICKETGATE_", "WG_")):
            monkeypatch.delenv(name)


def run(args: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """The exit code, and all that is said."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(args)
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.err + said.out


def identified(row: Any) -> str:
    return re.sub(r"\W+", "-", row)[:60] if isinstance(row, str) else ""


@requirement("OPS-125")
@pytest.mark.parametrize(("line", "environ", "code", "pattern"), COMMAND_LINES, ids=identified)
def test_a_mistake_in_a_file_or_a_command_line(
    line: str,
    environ: Mapping[str, str],
    code: int,
    pattern: str,
    tmp_path: Path,
    ports: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        if content is None:
            Path(name).mkdir()
        else:
            Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    for name, value in {"HOME": str(tmp_path), **environ}.items():
        monkeypatch.setenv(name, value)
    ended, said = run(filled(line, ports).split(), capsys)
    assert re.search(pattern, said), said
    assert ended == code
    assert not re.search(r"hush|Traceback|wg_\w{20}", said)


@pytest.fixture(scope="module")
def checked(ports: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The words of one ``check`` about all the connections, by the name of each."""
    folder = tmp_path_factory.mktemp("connections")
    documents = {
        "broken.yaml": "openapi: 3.1.0\npaths: [\n",
        "empty.yaml": "",
        "swagger.yaml": 'swagger: "2.0"\npaths: {}\n',
        "other.yaml": "hello: world\n",
        "paths.yaml": "openapi: 3.1.0\npaths: {/a: {get: {operationId: a}}}\n",
        "no-paths.yaml": "openapi: 3.1.0\npaths: {}\n",
        "script": "echo hello\n",
        "no-first-line": "echo hello\n",
        "odd-first-line": "#!/no/such/program\n",
    }
    for name, text in documents.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755 if name.endswith("first-line") else 0o644)
    upstreams = [
        {"name": f"u{number}", "connect_timeout_s": 20, **entry} for number, (entry, _) in enumerate(CONNECTIONS)
    ]
    (folder / "wicketgate.yaml").write_text(filled(yaml.safe_dump({"upstreams": upstreams}), ports))
    with chdir(folder):
        said = CliRunner().invoke(cli, ["check"]).output
    found: dict[str, str] = {}
    name = ""
    for line in said.split("\n"):
        if match := re.match(r"(u\d+): (?:down|ready), \d|(u\d+): (?:ready), 0 tools", line):
            name = match[1] or match[2]
        elif not line.startswith("    "):
            name = ""
        if name:
            found[name] = found.get(name, "") + line + "\n"
    return found


@requirement("OPS-126")
@pytest.mark.parametrize("number", range(len(CONNECTIONS)), ids=lambda number: identified(str(CONNECTIONS[number][0])))
def test_a_mistake_about_a_server(number: int, checked: Mapping[str, str]) -> None:
    said, pattern = checked[f"u{number}"], CONNECTIONS[number][1].replace("NAME", f"u{number}")
    assert re.search(pattern, said), said


@requirement("OPS-126")
def test_a_mistake_about_the_model(
    tmp_path: Path, ports: Mapping[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each other one is in ``tests/app/commands/test_check_model.py``."""
    monkeypatch.chdir(tmp_path)
    address = {"provider": "openai-chat", "base_url": f"http://127.0.0.1:{ports['PORT']}/401"}
    model = {**address, "model": "m", "api_key": "hush-hush"}
    Path("wicketgate.yaml").write_text(yaml.safe_dump({"model": model}) + GOOD)
    ended, said = run(["check", "--model"], capsys)
    assert re.search(r"HTTP 401: .*\. Set model\.api_key to a valid key", said), said
    assert ended == 1
    assert "hush" not in said


@pytest.fixture(scope="module")
def answered() -> list[tuple[int, str, str]]:
    """Status, answer and log of each request, all to one application."""
    keys = [{"id": "k", "sha256": hash_key(KEY), "actor": "me", "permissions": ["*"]}]
    app = create_app(Settings.model_validate({"auth": {"keys": keys}}))
    logged: list[str] = []

    class Log(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logged.append(record.getMessage())

    async def ask() -> list[tuple[int, str, str]]:
        found = []
        transport = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8080") as http,
        ):
            for method, path, headers, body, *_ in REQUESTS:
                logged.clear()
                content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
                media = {"content-type": "application/json"} if content else {}
                answer = await http.request(method, path, headers={**media, **headers}, content=content)
                found.append((answer.status_code, answer.text, "\n".join(logged)))
        return found

    log, handler = logging.getLogger("wicketgate"), Log()
    log.addHandler(handler)
    try:
        return asyncio.run(ask())
    finally:
        log.removeHandler(handler)


@requirement("OPS-127", "OPS-128")
@pytest.mark.parametrize(
    "number", range(len(REQUESTS)), ids=lambda number: identified(f"{number} {REQUESTS[number][1]}")
)
def test_a_mistake_in_a_request(number: int, answered: list[tuple[int, str, str]]) -> None:
    *_, status, pattern, logged = REQUESTS[number]
    got, text, log = answered[number]
    assert (got, bool(re.search(pattern, text))) == (status, True), text
    assert re.search(logged, log), log
    assert KEY not in text + log


@requirement("OPS-128")
def test_strangers_cannot_fill_the_log_with_names_of_hosts(caplog: pytest.LogCaptureFixture) -> None:
    from middleware.hosts import HostCheck, HostRule

    guard = HostCheck(HostRule(["localhost"]))
    for number in range(100):
        for _ in range(2):
            headers = [(b"host", b"h%d.example\n" % number * 100)]
            assert guard.refusal({"type": "http", "path": "/mcp", "headers": headers, "http_version": "1.1"})
    lines = caplog.messages
    assert len(lines) == len(set(lines)) == 20
    assert max(map(len, lines)) < 400
    assert not any("\n" in line for line in lines)

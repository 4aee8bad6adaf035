"""The shell of the console and its files, over HTTP."""

import base64
import re
import shutil
from hashlib import sha256
from pathlib import Path
from urllib.parse import urljoin

import pytest
from starlette.testclient import TestClient

from app.console.files import PAGES, STATIC, ConsoleFiles
from app.main import create_app
from tests.support.requirement import requirement
from wicketgate.config.settings import Settings

_MOST_BYTES = 320 * 1024


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(
        create_app(Settings()), base_url="http://127.0.0.1", client=("127.0.0.1", 1), follow_redirects=False
    )


@requirement("OPS-261")
@pytest.mark.parametrize("path", ["/", "/console"])
def test_the_entrances_lead_to_the_console(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert (answer.status_code, answer.headers["location"]) == (307, "./console/")


@requirement("OPS-438")
@pytest.mark.parametrize("path", ["nowhere", "a/b"])
def test_a_browser_that_opens_no_page_of_the_console_gets_a_link_to_it(client: TestClient, path: str) -> None:
    answer = client.get(f"/console/{path}", headers={"accept": "text/html,*/*;q=0.8"})
    assert answer.status_code == 404
    link = re.findall(r'href="([^"]+)"', answer.text)[0]
    assert urljoin(f"/console/{path}", link) == "/console/"
    assert "script" not in answer.text
    assert client.get(f"/console/{path}").status_code == 401
    assert client.get("/nowhere", headers={"accept": "text/html"}).status_code == 401


@requirement("OPS-261")
def test_each_page_is_the_same_shell(client: TestClient) -> None:
    shell = client.get("/console/")
    assert shell.headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/console/gate").content == shell.content
    for name in PAGES:
        assert _without_ahead(client.get(f"/console/{name}").text) == _without_ahead(shell.text)
    routes = (STATIC / "route.js").read_text("utf-8")
    listed = re.search(r"PAGES = \[(.*)\]", routes)
    assert listed is not None and tuple(re.findall(r'"(\w+)"', listed[1])) == PAGES


def _without_ahead(shell: str) -> str:
    return re.sub(r'\s*<link rel="(?:modulepreload|preload)" href="[^"]+"(?: as="style")?>', "", shell)


@requirement("OPS-325")
@pytest.mark.parametrize("page", PAGES)
def test_the_shell_names_each_module_and_the_styles_of_its_page(client: TestClient, page: str) -> None:
    shell = client.get(f"/console/{page}").text
    folder = re.findall(r'src="files/(\w+)/app\.js"', shell)[0]
    named = set(re.findall(rf'<link rel="modulepreload" href="files/{folder}/([^"]+)">', shell))
    assert f'<link rel="preload" href="files/{folder}/pages/{page}.css" as="style">' in shell
    assert f"pages/{page}.js" in named
    for name in {"app.js", *named}:
        file = STATIC / name
        for imported in re.findall(r"""^import[^;]*["'](.+)["'];$""", file.read_text("utf-8"), re.MULTILINE):
            if imported.startswith("."):
                assert (file.parent / imported).resolve().relative_to(STATIC).as_posix() in named
    assert {f"vendor/{name}" for name in ("preact.mjs", "hooks.mjs", "htm.module.js")} <= named


@requirement("OPS-261")
@pytest.mark.parametrize("path", ["/console/nothing", "/console/files/0/app.js", "/console/api/me", "/console/../x"])
def test_other_paths_need_a_credential(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 401


@requirement("OPS-262")
def test_files_are_kept_for_ever_and_the_shell_is_asked_for_each_time(client: TestClient) -> None:
    shell = client.get("/console/")
    assert shell.headers["cache-control"] == "no-cache"
    assert client.get("/console/", headers={"if-none-match": shell.headers["etag"]}).status_code == 304
    named = re.findall(r'(?:href|src)="(files/[^"]+)"', shell.text)
    assert len(named) > 5
    for name in named:
        file = client.get(f"/console/{name}")
        assert file.status_code == 200 and "immutable" in file.headers["cache-control"]


@requirement("OPS-262")
def test_all_files_together_are_small(client: TestClient) -> None:
    files = ConsoleFiles()
    assert files.size <= _MOST_BYTES
    for path in files.paths:
        answer = client.get(path, headers={"accept-encoding": "identity"})
        found = files.find(path)
        assert found is not None and answer.content == found.body
        assert client.get(path).content == found.body  # in gzip, which the client undoes


@requirement("OPS-262")
def test_another_byte_is_another_path(tmp_path: Path) -> None:
    copied = shutil.copytree(STATIC, tmp_path / "static")
    assert ConsoleFiles(copied).version == ConsoleFiles().version
    (copied / "app.js").write_bytes(b"//" + (copied / "app.js").read_bytes())
    assert ConsoleFiles(copied).version != ConsoleFiles().version


@requirement("OPS-263")
def test_the_policy_allows_the_map_of_imports_alone(client: TestClient) -> None:
    shell = client.get("/console/")
    policy = dict(part.split(" ", 1) for part in shell.headers["content-security-policy"].split("; "))
    scripts = re.findall(r"<script[^>]*>(.+?)</script>", shell.text)
    assert len(scripts) == 1
    digest = base64.b64encode(sha256(scripts[0].encode()).digest()).decode()
    assert policy["script-src"] == f"'self' 'sha256-{digest}'"
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["style-src"] == "'self'"
    assert " style=" not in shell.text
    assert shell.headers["x-content-type-options"] == "nosniff"


@requirement("OPS-264")
def test_the_console_can_be_taken_away() -> None:
    app = create_app(Settings.model_validate({"server": {"console": False}}))
    client = TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 1))
    assert client.get("/console/").status_code == 401
    assert client.get("/").status_code == 401


@requirement("ACCESS-35")
@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://192.0.2.7:8080", 401), ("https://192.0.2.7:8080", 401), ("http://192.0.2.8:8080", 403), ("null", 403)],
)
def test_a_page_of_the_host_that_was_asked_may_call(client: TestClient, origin: str, status: int) -> None:
    headers = {"origin": origin, "host": "192.0.2.7:8080"}
    assert client.get("/console/api/me", headers=headers).status_code == status


@requirement("OPS-321")
def test_each_colour_is_said_once_for_both_themes() -> None:
    tokens = re.findall(r"(--[\w-]+):", (STATIC / "style.css").read_text("utf-8"))
    assert len(tokens) > 20 and len(tokens) == len(set(tokens))

"""Documents in several files (UP-90 to UP-94)."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_service import HttpService, Reply, Seen
from tests.support.requirement import requirement
from tests.upstreams.openapi.fixtures import NONE
from tests.upstreams.openapi.test_openapi_upstream import Watched, changed, document, make, names, supervised
from wicketgate.net import Outgoing, make_http_client
from wicketgate.upstreams.openapi import plain
from wicketgate.upstreams.openapi.document import DocumentRefused, read_document
from wicketgate.upstreams.openapi.operations import Reading, read_operations
from wicketgate.upstreams.openapi.plain import TooLarge
from wicketgate.upstreams.openapi.upstream import FileSource, UrlSource

SHOP = {
    "openapi.yaml": """
openapi: 3.1.0
servers: [{url: "http://127.0.0.1:9"}]
paths:
  /pets: {$ref: "paths/pets.yml"}
  /pets/{id}:
    get: {$ref: "./paths/pet.yml#/get"}
components:
  schemas: {Tag: {type: object, properties: {tag: {type: string}}}}
""",
    "paths/pets.yml": """
parameters: [{$ref: "../common/limit.json"}]
post:
  operationId: addPet
  summary: Add a pet
  requestBody: {$ref: "bodies/pet.yml"}
  responses: {"201": {$ref: "../common/answers.yml#/Pet"}}
get: {operationId: listPets}
""",
    "paths/bodies/pet.yml": """
required: true
content:
  application/json:
    schema: {$ref: "../../common/pet.yml"}
""",
    "paths/pet.yml": 'get: {operationId: getPet, summary: "Look at a pet", parameters: [{$ref: "#/id"}]}\n'
    "id: {name: id, in: path, required: true, description: The number, schema: {type: integer}}",
    "common/limit.json": '{"name": "limit", "in": "query", "schema": {"type": "integer"}}',
    "common/answers.yml": """
Pet: {content: {application/json: {schema: {type: object, properties: {pet: {$ref: "pet.yml"}}}}}}
""",
    "common/pet.yml": """
type: object
required: [name]
properties:
  name: {type: string}
  owner: {$ref: "people.yml#/Tag"}
  tag: {$ref: "../openapi.yaml#/components/schemas/Tag"}
  friends: {type: array, items: {$ref: "pet.yml"}}
""",
    "common/people.yml": "Tag: {type: integer}",
}


def lay(folder: Path, files: Mapping[str, str | bytes]) -> FileSource:
    """Writes *files* below *folder*; the first is the document."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(text if isinstance(text, bytes) else text.encode())
    return FileSource(folder / next(iter(files)), poll_s=0.01)


def read(folder: Path, files: Mapping[str, str | bytes]) -> Reading:
    source = lay(folder, files)
    data = (folder / next(iter(files))).read_bytes()
    return read_operations(read_document(data, source.name, source.other), reserved_headers=NONE)


def referring(reference: str) -> dict[str, str | bytes]:
    """A document with one operation that is in it, and one elsewhere."""
    paths = {"/here": {"get": {"operationId": "here"}}, "/there": {"$ref": reference}}
    return {"docs/openapi.json": json.dumps({"openapi": "3.1.0", "paths": paths})}


@requirement("UP-90")
def test_references_are_followed_from_file_to_file(tmp_path: Path) -> None:
    found = read(tmp_path, SHOP)
    assert found.skipped == ()
    tools = {name: operation.tool for name, operation in found.operations.items()}
    assert {name: tool["description"] for name, tool in tools.items()} == {
        "listPets": "",
        "addPet": "Add a pet",
        "getPet": "Look at a pet",
    }
    assert tools["getPet"]["inputSchema"]["properties"] == {"id": {"type": "integer", "description": "The number"}}
    added = tools["addPet"]["inputSchema"]
    assert list(added["properties"]) == ["limit", "name", "owner", "tag", "friends"]
    assert added["required"] == ["name"]
    assert tools["addPet"]["outputSchema"]["properties"] == {"pet": {"$ref": "#/$defs/pet"}}


@requirement("UP-90")
def test_schemas_of_two_files_that_share_a_name_stay_apart(tmp_path: Path) -> None:
    schema = read(tmp_path, SHOP).operations["addPet"].tool["inputSchema"]
    owner, tag = (schema["properties"][name]["$ref"].removeprefix("#/$defs/") for name in ("owner", "tag"))
    assert owner != tag
    assert schema["$defs"][owner] == {"type": "integer"}
    assert schema["$defs"][tag] == {"type": "object", "properties": {"tag": {"type": "string"}}}


@requirement("UP-90")
@pytest.mark.parametrize("name", ["a b.yaml", "ä.json", "deep/er/x.YML"])
def test_names_are_read_as_they_are_written_in_a_url(tmp_path: Path, name: str) -> None:
    files = {**referring(name.replace(" ", "%20")), f"docs/{name}": '{"get": {"operationId": "there"}}'}
    assert list(read(tmp_path, files).operations) == ["here", "there"]


@requirement("UP-90", "UP-94")
@pytest.mark.parametrize(
    "reference",
    [
        "../secret.yaml",
        "a/../../secret.yaml",
        "%2e%2e/secret.yaml",
        "..%2fsecret.yaml",
        "{folder}/secret.yaml",
        "file://{folder}/secret.yaml",
        "file:secret.yaml",
        "http://127.0.0.1:9/secret.yaml",
        "//127.0.0.1:9/secret.yaml",
        "..\\secret.yaml",
        "secret.txt",
        "link.yaml",
        "folder/secret.yaml",
        "pipe.yaml",
        "inner",
        "inner.yaml",
        "loop.yaml",
        "missing.yaml",
        "here.yaml?x=1",
        "\x00.yaml",
        "openapi.json#/nowhere",
    ],
)
def test_nothing_but_documents_below_the_folder_is_read(tmp_path: Path, reference: str) -> None:
    secret = '{"get": {"operationId": "secret"}}'
    folder = tmp_path / "docs"
    files = {
        **referring(reference.replace("{folder}", str(tmp_path))),
        "secret.yaml": secret,
        "docs/secret.txt": secret,
    }
    lay(tmp_path, {**files, "docs/here.yaml": secret})
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")
    (folder / "folder").symlink_to(tmp_path)
    (folder / "loop.yaml").symlink_to("loop.yaml")
    (folder / "inner.yaml").mkdir()
    os.mkfifo(folder / "pipe.yaml")
    source = FileSource(folder / "openapi.json")
    read_one = read_document((folder / "openapi.json").read_bytes(), source.name, source.other)
    found = read_operations(read_one, reserved_headers=NONE)
    assert list(found.operations) == ["here"]
    assert len(found.skipped) == 1
    assert found.skipped[0].startswith("/there: ")
    assert str(tmp_path) not in found.skipped[0]


@requirement("UP-90")
def test_links_within_the_folder_are_followed_as_in_a_volume_of_kubernetes(tmp_path: Path) -> None:
    lay(tmp_path, {**referring("there.yaml"), "docs/..2026/there.yaml": "get: {operationId: there}"})
    (tmp_path / "docs/..data").symlink_to("..2026")
    (tmp_path / "docs/there.yaml").symlink_to("..data/there.yaml")
    assert list(read(tmp_path, referring("there.yaml")).operations) == ["here", "there"]


@requirement("UP-94")
@pytest.mark.parametrize(
    ("paths", "reason"),
    [
        ({"/a": {"get": {"$ref": "gone.yaml"}}}, "GET /a: gone.yaml: there is no such file"),
        ({"/a": {"$ref": "gone.yaml"}}, "/a: gone.yaml: there is no such file"),
        ({"/a": {"get": {"$ref": "#/nowhere"}}}, "GET /a: a reference leads to nothing"),
        ({"/a": {"get": {"$ref": "broken.yaml"}}}, "GET /a: broken.yaml: it is neither JSON nor YAML: line 1"),
        ({"/a": {"get": {"$ref": "list.yaml"}}}, "GET /a: something that is not an object"),
        ({"/a": {"$ref": "list.yaml#/0"}}, "/a: something that is not an object"),
        ({"/a": {"$ref": "list.yaml#/5"}}, "/a: list.yaml: a reference leads to nothing"),
        ({"/a": {"get": {"parameters": [{"$ref": "gone.yaml"}]}}}, "GET /a: gone.yaml: there is no such file"),
        ({"/a": {"get": {"parameters": {"$ref": "gone.yaml"}}}}, "GET /a: gone.yaml: there is no such file"),
    ],
)
def test_what_stands_elsewhere_and_cannot_be_read_is_no_empty_tool(
    tmp_path: Path, paths: dict[str, Any], reason: str
) -> None:
    root = json.dumps({"openapi": "3.1.0", "paths": {**paths, "/b": {"get": {"operationId": "b"}}}})
    found = read(tmp_path, {"openapi.json": root, "broken.yaml": "a: b: c", "list.yaml": "[1]"})
    assert list(found.operations) == ["b"]
    assert len(found.skipped) == 1
    assert found.skipped[0].startswith(reason)


@requirement("UP-94")
def test_extensions_among_the_paths_are_none() -> None:
    data = document("a", paths={"x-note": "words", "/a": {"get": {"operationId": "a"}}})
    found = read_operations(read_document(data), reserved_headers=NONE)
    assert (list(found.operations), found.skipped) == (["a"], ())


@requirement("UP-91")
@pytest.mark.parametrize(
    ("bound", "most", "reason"),
    [
        ("MAX_DOCUMENT_BYTES", 700, "larger than"),
        ("_MAX_YAML_BYTES", 700, "give it as JSON"),
        ("_MAX_VALUES", 60, "values"),
        ("_MAX_FILES", 3, "more than 3 files"),
    ],
)
def test_all_files_together_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, reason: str
) -> None:
    monkeypatch.setattr(plain, bound, most)
    with pytest.raises(TooLarge, match=reason):
        read(tmp_path, SHOP)


@requirement("UP-91")
def test_files_that_lead_on_to_each_other_end(tmp_path: Path) -> None:
    chain = {f"docs/{number}.yaml": f'{{$ref: "{number + 1}.yaml"}}' for number in range(100)}
    found = read(tmp_path, {**referring("0.yaml"), **chain})
    assert found.skipped == ("/there: references lead on to other references without end",)
    circle = {"docs/0.yaml": '{$ref: "1.yaml"}', "docs/1.yaml": '{$ref: "0.yaml"}'}
    found = read(tmp_path, {**referring("0.yaml"), **circle})
    assert found.skipped == ("/there: references lead on to other references without end",)


@requirement("UP-92")
async def test_a_change_of_any_file_is_seen(tmp_path: Path) -> None:
    upstream = make(lay(tmp_path, SHOP))
    async with supervised(upstream) as changes:
        assert await names(upstream) == ["listPets", "addPet", "getPet"]
        lay(tmp_path, {"paths/pet.yml": "get: {operationId: seePet}"})
        await changed(changes)
        assert await names(upstream) == ["listPets", "addPet", "seePet"]
        lay(tmp_path, {"common/people.yml": "Tag: {type: boolean}"})
        await changed(changes)
        added = next(tool for tool in await upstream.list_tools() if tool["name"] == "addPet")
        assert {"type": "boolean"} in added["inputSchema"]["$defs"].values()


@requirement("UP-92")
async def test_what_is_refused_and_does_not_change_is_not_read_again(tmp_path: Path) -> None:
    paths = {f"/{name}": {"$ref": name} for name in ("link.yaml", "folder.yaml", "pipe.yaml", "gone.yaml", "bad.yaml")}
    source = lay(tmp_path, {"docs/openapi.json": document(paths=paths), "docs/bad.yaml": "a: [", "a.yaml": "get: {}"})
    (tmp_path / "docs/link.yaml").symlink_to(tmp_path / "a.yaml")
    (tmp_path / "docs/folder.yaml").mkdir()
    os.mkfifo(tmp_path / "docs/pipe.yaml")
    data = await source.load()
    assert data is not None
    assert len(read_operations(read_document(data, source.name, source.other), reserved_headers=NONE).skipped) == 5
    assert await source.load() is None


@requirement("UP-92")
async def test_a_file_whose_rights_change_is_read_again(tmp_path: Path) -> None:
    source = lay(tmp_path, {"x.json": document("a"), "other.yaml": "a"})
    assert await source.load() is not None
    source.other("other.yaml")
    assert await source.load() is None
    (tmp_path / "other.yaml").chmod(0o400)
    assert await source.load() is not None


@requirement("UP-92")
async def test_a_file_that_breaks_or_goes_takes_no_tool_away_and_one_that_comes_is_seen(tmp_path: Path) -> None:
    files = {name: text for name, text in SHOP.items() if name != "paths/pet.yml"}
    source = Watched(lay(tmp_path, files))
    upstream = make(source)
    async with supervised(upstream) as changes:
        assert await names(upstream) == ["listPets", "addPet"]
        assert list(upstream.left_out) == ["GET /pets/{id}: paths/pet.yml: there is no such file"]
        lay(tmp_path, {"paths/pet.yml": SHOP["paths/pet.yml"]})
        await changed(changes)
        lay(tmp_path, {"paths/pets.yml": "get: ["})
        await source.seen()
        assert await names(upstream) == ["listPets", "addPet", "getPet"]
        assert upstream.status.phase == "ready"
        assert upstream.status.last_error.startswith("paths/pets.yml: it is neither JSON nor YAML")
        (tmp_path / "paths/pets.yml").unlink()
        await source.seen()
        assert await names(upstream) == ["listPets", "addPet", "getPet"]
        lay(tmp_path, {"paths/pets.yml": "get: {operationId: allPets}"})
        await changed(changes)
        assert await names(upstream) == ["allPets", "getPet"]


@requirement("UP-93")
async def test_a_document_from_a_url_is_read_alone_and_says_how_to_bundle_it() -> None:
    paths = {
        "/a": {"get": {"operationId": "a", "parameters": [{"$ref": "openapi.json#/components/parameters/P"}]}},
        "/b": {"get": {"$ref": "paths/b.yaml"}},
    }
    components = {"parameters": {"P": {"name": "p", "in": "query"}}}

    def answer(seen: Seen) -> Reply:
        return Reply(document(paths=paths, components=components))

    async with HttpService(answer) as service:
        http = make_http_client(Outgoing())
        upstream = make(UrlSource(f"{service.url}/docs/openapi.json?v=1", http, {}, None), http=http)
        async with supervised(upstream):
            assert await names(upstream) == ["a"]
            [reason] = upstream.left_out
    assert reason.startswith("GET /b: paths/b.yaml: ")
    assert "bundle it first (redocly bundle)" in reason
    assert {seen.target for seen in service.seen} == {"/docs/openapi.json?v=1"}


@requirement("UP-94")
@pytest.mark.parametrize(
    ("paths", "mend"),
    [
        ({}, "it describes none, or none that is not marked x-internal"),
        ({"/a": {"get": {"x-internal": True}}}, "it describes none, or none that is not marked x-internal"),
        ({"/a": {"$ref": "a.yaml"}}, "/a: a.yaml: there is no such file"),
        ({"/a": {"$ref": "a.yaml"}, "/b": {"get": 5}}, "/a: a.yaml: there is no such file; and 1 more"),
    ],
)
async def test_a_document_that_yields_nothing_is_no_success(tmp_path: Path, paths: dict[str, Any], mend: str) -> None:
    source = Watched(lay(tmp_path, {"openapi.json": document(paths=paths)}))
    upstream = make(source, "http://127.0.0.1:9")
    async with supervised(upstream, ready=False) as changes:
        await source.seen()
        assert (upstream.status.phase, upstream.status.error) == (
            "down",
            "its document has no operation that can be used",
        )
        assert upstream.status.report == f"its document has no operation that can be used: {mend}"
        lay(tmp_path, {"openapi.json": document("a")})
        await changed(changes)
        assert (upstream.status.phase, await names(upstream)) == ("ready", ["a"])


def test_paths_may_stand_in_a_file_of_their_own(tmp_path: Path) -> None:
    root = '{"openapi": "3.1.0", "paths": {"$ref": "paths.yaml"}}'
    assert list(read(tmp_path, {"x.json": root, "paths.yaml": "/a: {get: {operationId: a}}"}).operations) == ["a"]
    with pytest.raises(DocumentRefused, match="paths cannot be read"):
        read(tmp_path, {"x.json": root.replace("paths.yaml", "gone.yaml")})

"""The configuration and the keys, read over HTTP: no secret, no hash."""

from pathlib import Path

import pytest

from tests.app.console.test_servers import API, WRITER, as_key, get
from tests.support.requirement import requirement
from tests.support.service import KEY, OPERATOR_KEY, FileServer, running_service
from wicketgate.access.identity import hash_key
from wicketgate.config.settings_file import load_settings

SECRETS = {
    "SHOP_TOKEN": "shop-token-0123456789",
    "MODEL_KEY": "model-key-0123456789",
    "CHECK_URL": "http://shop.example/mcp",
}
LITERAL = "a-literal-secret-in-the-file"

_FILE = """
model: {provider: openai-chat, base_url: "http://127.0.0.1:1/v1", model: m, api_key: "${MODEL_KEY}"}
storage: {url: "redis://ann:hidden-password@127.0.0.1:1/0"}
access: [{match: "nothing:*", effect: deny}]
plugins:
  middleware: {_global: [{handler: call_trace, config: {}}]}
upstreams:
  - name: shop
    url: "${CHECK_URL}"
    headers: {Authorization: "Bearer ${SHOP_TOKEN}", X-Api-Key: LITERAL}
    enabled: false
  - {name: local, command: [serve, "--token", "token-in-an-argument", "--verbose"], enabled: false}
"""


@requirement("OPS-252")
async def test_values_are_shown_and_secrets_only_by_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "wicketgate.yaml"
    file.write_text(_FILE.replace("LITERAL", LITERAL))
    settings = load_settings(file, SECRETS)
    given = {name: getattr(settings, name) for name in type(settings).model_fields}
    given["storage"] = given["storage"].model_copy(update={"url": "memory://"})
    async with running_service(upstreams=[FileServer()], settings=given) as service:
        gate = service.app.state.gate
        await gate.apply(settings.model_copy(update={"server": settings.server.model_copy(update={"port": 81})}))
        answer = await service.http.get(f"{API}/configuration", headers=as_key(OPERATOR_KEY))
        found = answer.json()
    rows = {row["path"]: row for section in found["sections"] for row in section["rows"]}
    values = {path: row["value"] for path, row in rows.items()}
    assert values["model.api_key"] == "${MODEL_KEY}"
    assert values["upstreams.shop.headers.Authorization"] == "${SHOP_TOKEN}"
    assert values["upstreams.shop.headers.X-Api-Key"] == "set"
    assert values["upstreams.shop.url"] == "${CHECK_URL}"
    assert values["upstreams.local.command"] == "serve, --token, [redacted], --verbose"
    assert (values["server.host"], rows["server.host"]["default"]) == ("127.0.0.1", True)
    assert values["access[0].match"] == "nothing:*"
    for secret in (*SECRETS.values(), LITERAL, "hidden-password", "token-in-an-argument", hash_key(KEY)):
        assert secret not in answer.text
    assert found["file"] == str(file)
    assert found["waiting"] == ["server.port", "storage.url"]
    assert [path for path, row in rows.items() if row["waits"]] == ["server.port", "storage.url"]
    assert found["unmatched"] == ["access[0] (nothing:*)"]
    assert found["storage"]["kind"] == "memory"


@requirement("OPS-249")
async def test_keys_are_told_without_their_hashes() -> None:
    ended = {**WRITER, "id": "old", "sha256": "0" * 64, "expires_at": "2020-01-01T00:00:00Z"}
    settings = {"auth": {"keys": [WRITER, ended]}}
    async with running_service(upstreams=[FileServer()], settings=settings) as service:
        await service.http.get("/operations")
        answer = await service.http.get(f"{API}/keys", headers=as_key(OPERATOR_KEY))
        keys = {key["id"]: key for key in answer.json()["keys"]}
    assert list(keys) == sorted(keys)
    assert (keys["gone"]["state"], keys["old"]["state"], keys["test"]["state"]) == ("suspended", "expired", "good")
    assert keys["old"]["expires_at"] == 1577836800.0
    assert keys["test"]["last_used"] is not None
    assert keys["other"]["last_used"] is None
    assert keys["writer"]["permissions"] == ["ops:*", "tools:*"]
    for secret in (KEY, hash_key(KEY), "0" * 64):
        assert secret not in answer.text
    times = {"not_before", "expires_at", "last_used"}
    assert set(keys["test"]) == {"id", "actor", "permissions", "roles", "state", "made_here", *times}


async def test_one_section_has_all_of_its_values() -> None:
    async with running_service(upstreams=[FileServer()]) as service:
        found = await get(service, "configuration")
    (server,) = (section for section in found["sections"] if section["name"] == "server")
    assert all(row["default"] for row in server["rows"])
    assert "server.max_body_bytes" in {row["path"] for row in server["rows"]}

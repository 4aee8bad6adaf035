"""One CA file and one set of proxies for everything that the configuration sends out."""

import json
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from tests.support.http_service import HttpService, Reply, Seen
from tests.support.model_server import ModelServer, text_turn
from tests.support.proxy import HttpProxy
from tests.support.requirement import requirement
from tests.support.supervised import connected
from wicketgate.access.identity import Identity
from wicketgate.config.engine import make_provider
from wicketgate.config.settings import ModelSettings, NetworkSettings, Settings, UpstreamSettings
from wicketgate.config.upstreams import UpstreamMaker, outgoing_rules
from wicketgate.errors import ConfigError, EngineError
from wicketgate.models.provider import ModelRequest, TextDelta
from wicketgate.ports import CallContext

CONTEXT = CallContext(Identity("owner_1", ("*",)), "trace-1", "session")


def settings_with(ca_file: str) -> Settings:
    return Settings(network=NetworkSettings(ca_file=ca_file))


@requirement("UP-40")
async def test_a_private_authority_holds_for_services_their_documents_and_token_servers(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    document = {"openapi": "3.1.0", "paths": {"/a": {"get": {"operationId": "a"}}}}

    def answer(seen: Seen) -> Reply:
        if seen.target == "/token":
            return Reply(json.dumps({"access_token": "t", "token_type": "Bearer"}).encode())
        assert seen.headers["authorization"] == "Bearer t"
        return Reply(json.dumps(document if seen.target == "/openapi.json" else {"a": 1}).encode())

    async with HttpService(answer, tls=authority.serving("127.0.0.1")) as service:
        settings = UpstreamSettings.model_validate(
            {
                "name": "shop",
                "openapi": f"{service.url}/openapi.json",
                "oauth": {"token_url": f"{service.url}/token", "client_id": "me", "client_secret": "s"},
            }
        )
        upstream = UpstreamMaker(outgoing_rules(settings_with(str(authority.ca_file)))).upstream(settings)
        async with connected(upstream):
            result = await upstream.call_tool("a", {}, CONTEXT, 5)
    assert result["structuredContent"] == {"a": 1}


@requirement("UP-40")
@pytest.mark.parametrize("named", [True, False])
async def test_a_private_authority_holds_for_models(tmp_path: Path, named: bool) -> None:
    authority = Authority(tmp_path)
    rules = outgoing_rules(settings_with(str(authority.ca_file) if named else ""))
    async with ModelServer(text_turn("Hello."), tls=authority.serving("127.0.0.1")) as server:
        model = ModelSettings(provider="openai-chat", base_url=server.base_url, model="m", attempts=1)
        provider = make_provider(model, rules)
        said = ""
        try:
            async for events in provider.stream(ModelRequest(({"role": "user", "content": "hi"},), (), "req_1")):
                said += "".join(event.content for event in events if isinstance(event, TextDelta))
        except EngineError:
            assert not named
        finally:
            await provider.aclose()
    assert said == ("Hello." if named else "")


@requirement("UP-39")
async def test_models_and_services_go_through_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    async with ModelServer(text_turn("Hello.")) as server, HttpProxy().running() as proxy:
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy.port}")
        base_url = server.base_url.replace("127.0.0.1", "model.test")
        model = ModelSettings(provider="openai-chat", base_url=base_url, model="m", attempts=1)
        provider = make_provider(model, outgoing_rules(Settings()))
        async for _ in provider.stream(ModelRequest(({"role": "user", "content": "hi"},), (), "req_1")):
            pass
        await provider.aclose()
        assert proxy.requests[0].startswith(f"POST {base_url}/chat/completions HTTP/1.1\r\n".encode())


@requirement("UP-40")
@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_a_ca_file_without_certificates_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=r"^network\.ca_file"):
        outgoing_rules(settings_with(str(file)))

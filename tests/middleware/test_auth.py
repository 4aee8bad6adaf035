"""Identity headers are ours alone to set (ACCESS-1, ACCESS-2)."""

import json

import pytest
from starlette.types import Message, Receive, Scope, Send

from tests.support.front import front
from tests.support.requirement import requirement
from wicketgate.access.identity import HashedKey, Identity, hash_key

OWNER = Identity("owner_1", ("memory:*", "tools:*"))


class Door:
    """An application behind the middleware; keeps the scopes that got through."""

    def __init__(self, *, local_only: bool = False) -> None:
        self.scopes: list[Scope] = []
        self.app = front(self._app, keys=[HashedKey("one", hash_key("good"), OWNER)], local_only=local_only)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scopes.append(scope)

    async def knock(
        self,
        *headers: tuple[bytes, bytes],
        path: str = "/engine/chat",
        kind: str = "http",
        client: tuple[str, int] | None = ("10.0.0.7", 5),
    ) -> list[Message]:
        sent: list[Message] = []

        async def send(message: Message) -> None:
            sent.append(message)

        async def receive() -> Message:
            raise AssertionError("the middleware must not read the body")

        own = {"method": "GET", "path": path, "headers": [(b"host", b"localhost"), *headers], "client": client}
        await self.app({"type": kind, **own}, receive, send)
        return sent

    def identity_headers(self) -> list[tuple[bytes, bytes]]:
        (scope,) = self.scopes
        return [(key, value) for key, value in scope["headers"] if b"actor" in key.lower()]


GOOD = (b"authorization", b"Bearer good")


@requirement("ACCESS-2")
async def test_identity_headers_of_the_client_are_replaced_however_they_are_spelt() -> None:
    door = Door()
    await door.knock(
        (b"x-actor-id", b"root"),
        (b"X-Actor-ID", b"root"),
        (b"x_actor_id", b"root"),
        (b"x-actor_permissions", b"*"),
        (b"x-actor-permissions", b"*"),
        GOOD,
    )
    assert door.identity_headers() == [(b"x-actor-id", b"owner_1"), (b"x-actor-permissions", b"memory:*,tools:*")]
    assert door.scopes[0]["state"]["identity"] == OWNER


@requirement("ACCESS-2")
async def test_open_paths_get_no_identity_not_even_a_forged_one() -> None:
    door = Door()
    await door.knock((b"x-actor-id", b"root"), path="/healthz")
    assert door.identity_headers() == []
    assert "identity" not in door.scopes[0].get("state", {})


@requirement("ACCESS-1")
async def test_two_authorization_headers_are_no_credential() -> None:
    door = Door()
    sent = await door.knock(GOOD, (b"authorization", b"Bearer other"))
    assert sent[0]["status"] == 401
    assert door.scopes == []


@requirement("ACCESS-4")
async def test_a_websocket_is_closed_unheard_and_a_lifespan_passes() -> None:
    door = Door()
    assert await door.knock(GOOD, kind="websocket") == [{"type": "websocket.close", "code": 1008}]
    assert door.scopes == []
    await door.knock(kind="lifespan")
    assert [scope["type"] for scope in door.scopes] == ["lifespan"]


@requirement("ACCESS-80")
@pytest.mark.parametrize("headers", [(), (GOOD,), ((b"authorization", b"Bearer wrong"),)])
@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-protected-resource/mcp", "/.well-known/", "/.well-known/../engine/chat"]
)
async def test_there_is_no_document_below_well_known_with_or_without_a_credential(
    path: str, headers: tuple[tuple[bytes, bytes], ...]
) -> None:
    door = Door()
    start, body = await door.knock(*headers, path=path)
    assert (start["status"], json.loads(body["body"])["code"]) == (404, "not_found")
    assert all(name != b"www-authenticate" for name, _ in start["headers"])
    assert door.scopes == []


@requirement("ACCESS-5")
@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"])
async def test_a_service_for_this_machine_takes_callers_at_its_loopback_addresses(address: str) -> None:
    door = Door(local_only=True)
    assert await door.knock(GOOD, client=(address, 5)) == []
    assert door.scopes


@requirement("ACCESS-5")
@pytest.mark.parametrize(
    "client", [("10.0.0.7", 5), ("::ffff:10.0.0.7", 5), ("fe80::1%eth0", 5), ("testclient", 5), None]
)
@pytest.mark.parametrize("path", ["/engine/chat", "/healthz", "/readyz", "/mcp", "/.well-known/x"])
async def test_a_service_for_this_machine_refuses_others_before_anything(
    client: tuple[str, int] | None, path: str
) -> None:
    door = Door(local_only=True)
    start, body = await door.knock(GOOD, path=path, client=client)
    assert start["status"] == 403
    assert json.loads(body["body"])["code"] == "forbidden"
    assert door.scopes == []


@requirement("ACCESS-33")
@pytest.mark.parametrize("header", [b"x-forwarded-for", b"forwarded"])
async def test_a_service_for_this_machine_refuses_what_a_proxy_forwards(header: bytes) -> None:
    door = Door(local_only=True)
    start, _ = await door.knock(GOOD, (header, b"127.0.0.1"), client=("127.0.0.1", 5))
    assert start["status"] == 403
    assert (b"connection", b"close") in start["headers"]
    assert door.scopes == []

"""The contract that every store of sessions of the handshake era keeps (FACE-115).

A store is tested by a class that inherits this one, beside a fixture ``store`` that makes it and closes it.
"""

from tests.support.requirement import requirement
from wicketgate.faces.mcp.kept_sessions import KeptSession, McpSessionStore, Renewal, SessionChange

CLIENT = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"roots": {}},
    "clientInfo": {"name": "t\ud800", "version": ""},
}


def session(actor: str = "ann", **more: object) -> KeptSession:
    return KeptSession(actor, "k1", "2025-06-18", CLIENT, **more)  # type: ignore[arg-type]


class McpSessionStoreContract:
    @requirement("FACE-115")
    async def test_what_one_process_opens_another_goes_on_with(self, store: McpSessionStore) -> None:
        opened = session("änn \ud800", log_level="error", uris=frozenset({"a:\ud800", "b:"}))
        await store.open("s1", opened, "one")
        assert await store.join("s1", opened.actor, "two") == opened
        assert sorted(await store.members("s1")) == ["one", "two"]
        assert await store.leave("s1", "one") == ["two"] or await store.leave("s1", "one") == ("two",)
        assert await store.join("s2", "ann", "one") is None
        assert list(await store.members("s2")) == []

    @requirement("FACE-3", "FACE-115")
    async def test_it_is_nothing_to_another_actor(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one")
        for stranger in ("bob", "", "ann "):
            assert await store.join("s1", stranger, "two") is None
        assert list(await store.members("s1")) == ["one"]

    @requirement("FACE-115")
    async def test_changes_are_known_to_all_and_do_not_undo_each_other(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one")
        await store.join("s1", "ann", "two")
        assert sorted(await store.change("s1", SessionChange(log_level="debug"))) == ["one", "two"]
        await store.change("s1", SessionChange(follow="x:1"))
        await store.change("s1", SessionChange(follow="x:2"))
        await store.change("s1", SessionChange(key_id="k2"))
        await store.change("s1", SessionChange(unfollow="x:1"))
        assert await store.join("s1", "ann", "two") == KeptSession(
            "ann", "k2", "2025-06-18", CLIENT, "debug", frozenset({"x:2"})
        )
        assert list(await store.change("s2", SessionChange(log_level="debug"))) == []
        assert await store.join("s2", "ann", "two") is None

    @requirement("FACE-116")
    async def test_an_end_is_the_end_for_all(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one")
        await store.join("s1", "ann", "two")
        assert sorted(await store.end("s1")) == ["one", "two"]
        assert await store.join("s1", "ann", "two") is None
        assert list(await store.change("s1", SessionChange(log_level="debug"))) == []
        assert list(await store.renew({"s1": Renewal(session(), 0.0)}, "two")) == ["s1"]
        assert await store.join("s1", "ann", "two") is None
        assert list(await store.end("s1")) == []

    @requirement("FACE-117")
    async def test_a_session_that_the_store_has_lost_is_kept_again(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one")
        await store.change("s1", SessionChange(log_level="debug"))
        renewals = {"s1": Renewal(session(), 5.0), "s2": Renewal(session("bob", uris=frozenset({"x:"})), 5.0)}
        assert list(await store.renew(renewals, "two")) == []
        assert await store.join("s1", "ann", "one") == session(log_level="debug"), "what is there is not written over"
        assert await store.join("s2", "bob", "one") == session("bob", uris=frozenset({"x:"}))
        assert sorted(await store.members("s2")) == ["one", "two"]

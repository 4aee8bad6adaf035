"""The contract that every store of sessions of the handshake era keeps (FACE-115).

A store is tested by a class that inherits this one, beside a fixture ``store`` that makes it and closes it.
"""

from tests.support.requirement import requirement
from wicketgate.faces.mcp.kept_sessions import KeptSession, McpSessionStore, Renewal, SessionChange

HOLDER = "a1"

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
        await store.open("s1", opened, "one", HOLDER)
        assert await store.join("s1", opened.actor, "two", HOLDER) == opened
        assert sorted(await store.members("s1")) == ["one", "two"]
        assert await store.leave("s1", "one") == ["two"] or await store.leave("s1", "one") == ("two",)
        assert await store.join("s2", "ann", "one", HOLDER) is None
        assert list(await store.members("s2")) == []

    @requirement("FACE-3", "FACE-115")
    async def test_it_is_nothing_to_another_actor(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one", HOLDER)
        for stranger in ("bob", "", "ann "):
            assert await store.join("s1", stranger, "two", HOLDER) is None
        assert list(await store.members("s1")) == ["one"]

    @requirement("FACE-115")
    async def test_changes_are_known_to_all_and_do_not_undo_each_other(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one", HOLDER)
        await store.join("s1", "ann", "two", HOLDER)
        assert sorted(await store.change("s1", SessionChange(log_level="debug"))) == ["one", "two"]
        await store.change("s1", SessionChange(follow="x:1"))
        await store.change("s1", SessionChange(follow="x:2"))
        await store.change("s1", SessionChange(key_id="k2"))
        await store.change("s1", SessionChange(unfollow="x:1"))
        assert await store.join("s1", "ann", "two", HOLDER) == KeptSession(
            "ann", "k2", "2025-06-18", CLIENT, "debug", frozenset({"x:2"})
        )
        assert list(await store.change("s2", SessionChange(log_level="debug"))) == []
        assert await store.join("s2", "ann", "two", HOLDER) is None

    @requirement("FACE-116")
    async def test_an_end_is_the_end_for_all(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one", HOLDER)
        await store.join("s1", "ann", "two", HOLDER)
        assert sorted(await store.end("s1", HOLDER)) == ["one", "two"]
        assert await store.join("s1", "ann", "two", HOLDER) is None
        assert list(await store.change("s1", SessionChange(log_level="debug"))) == []
        assert list(await store.renew({"s1": Renewal(session(), 0.0, HOLDER)}, "two")) == ["s1"]
        assert await store.join("s1", "ann", "two", HOLDER) is None
        assert list(await store.end("s1", HOLDER)) == []

    @requirement("FACE-117")
    async def test_a_session_that_the_store_has_lost_is_kept_again(self, store: McpSessionStore) -> None:
        await store.open("s1", session(), "one", HOLDER)
        await store.change("s1", SessionChange(log_level="debug"))
        renewals = {
            "s1": Renewal(session(), 5.0, HOLDER),
            "s2": Renewal(session("bob", uris=frozenset({"x:"})), 5.0, HOLDER),
        }
        assert list(await store.renew(renewals, "two")) == []
        assert await store.join("s1", "ann", "one", HOLDER) == session(log_level="debug"), "not written over"
        assert await store.join("s2", "bob", "one", HOLDER) == session("bob", uris=frozenset({"x:"}))
        assert sorted(await store.members("s2")) == ["one", "two"]

    @requirement("ACCESS-102")
    async def test_an_actor_has_no_more_places_than_allowed_whichever_process_asks(
        self, store: McpSessionStore
    ) -> None:
        assert [await store.reserve(name, HOLDER, 2) for name in ("s1", "s2", "s3")] == [True, True, False]
        assert await store.reserve("s1", HOLDER, 2), "it has it already"
        assert await store.reserve("s3", "b2", 2), "another one has places of its own"
        await store.open("s1", session(), "one", HOLDER)
        await store.join("s1", "ann", "two", HOLDER)
        assert not await store.reserve("s4", HOLDER, 2), "a session at two processes is one"
        await store.release("s2", HOLDER)
        assert [await store.reserve(name, HOLDER, 2) for name in ("s4", "s5")] == [True, False]
        await store.leave("s1", "one")
        await store.leave("s1", "two")
        assert not await store.reserve("s5", HOLDER, 2), "it can be taken up again"
        await store.end("s1", HOLDER)
        assert await store.reserve("s5", HOLDER, 2)

    @requirement("ACCESS-102")
    async def test_a_session_that_is_kept_again_has_its_place_and_one_that_ended_has_none(
        self, store: McpSessionStore
    ) -> None:
        await store.renew({"s1": Renewal(session(), 5.0, HOLDER)}, "one")
        assert not await store.reserve("s2", HOLDER, 1)
        await store.end("s1", HOLDER)
        await store.renew({"s1": Renewal(session(), 5.0, HOLDER)}, "two")
        await store.open("s1", session(), "two", "b2")
        await store.join("s9", "ann", "two", HOLDER)
        assert await store.reserve("s2", HOLDER, 1)

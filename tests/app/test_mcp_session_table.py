"""The sessions of each actor are counted as they come and go (FACE-39)."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from app.mcp_live_session import LiveSession
from app.mcp_session_table import SessionTable
from tests.storage.mcp_session_store_contract import CLIENT
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.access.identity import Identity
from wicketgate.faces.mcp.kept_sessions import KeptSession

STEPS = st.tuples(
    st.sampled_from(["put", "put again", "remove", "move", "take", "give"]),
    st.sampled_from(["a", "b", "c", "d"]),
    st.sampled_from(["ann", "bob", "cid"]),
)


def session(id: str, actor: str) -> LiveSession:
    return LiveSession(id, id, kept(actor), Identity(actor), 0.0)


def kept(actor: str) -> KeptSession:
    return KeptSession(actor, "k1", "2025-06-18", CLIENT)


@requirement("FACE-39")
@given(st.lists(STEPS, max_size=40))
@settings(max_examples=examples(300))
def test_counts_are_those_of_the_sessions_that_are_there_whatever_comes_and_goes(steps: list[Any]) -> None:
    table, there, opening = SessionTable(), dict[str, LiveSession](), Counter[str]()
    gone = session("a", "ann")
    for step, id, actor in steps:
        match step:
            case "put":
                there[id] = session(id, actor)
                table.put(there[id])
            case "put again" if id in there:
                table.put(there[id])
            case "remove":
                table.remove(gone)
                gone = there.pop(id, gone)
                table.remove(gone)
            case "move" if id in there:
                there[id].kept = kept(actor)
                table.put(there[id])
            case "take":
                opening[actor] += 1
                table.take_place(actor)
            case "give" if opening[actor]:
                opening[actor] -= 1
                table.give_place_back(actor)
    expected = Counter(live.kept.actor for live in there.values()) + opening
    assert (table.counts, table.total) == (expected, expected.total())
    assert set(table) == set(there.values())
    for actor in ("ann", "bob", "cid"):
        assert set(table.of(actor)) == {live for live in there.values() if live.kept.actor == actor}
    if expected:
        assert table.most()[1] == max(expected.values())

"""Links that results named: bounded for an actor and in all (EXEC-81)."""

from typing import Any

from tests.catalog.fixtures import item
from tests.support.requirement import requirement
from wicketgate.gateway.named_links import NamedLinks


def links(*uris: object) -> dict[str, Any]:
    return {"content": [{"type": "resource_link", "uri": uri, "name": "n"} for uri in uris]}


@requirement("EXEC-81")
def test_the_newest_links_of_the_last_actors_are_kept() -> None:
    known, tool = NamedLinks(), item("list", "docs")
    known.note("ann", tool, links(*(f"note://{number}" for number in range(90))))
    known.note("ann", tool, links(*(f"more://{number}" for number in range(20)), "note://50"))
    assert known.find("ann", "note://5") is None
    assert known.find("ann", "note://50") == known.find("ann", "link: n | note://50 | text/plain")
    assert known.find("bob", "note://50") is None
    known.note("bob", tool, links("a" * 2_000, 5) | {"content": None})
    for number in range(500):
        known.note(f"actor {number}", tool, links("note://1", "a" * 2_000))
    assert known.find("ann", "note://50") is None
    assert known.find("actor 499", "note://1") is not None
    assert known.find("actor 499", "a" * 2_000) is None

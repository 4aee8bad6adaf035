"""A search of the console in a large catalog is worked out beside the event loop."""

import pytest

from app.console.search import search
from tests.faces.test_large_catalog import ALL, SOME, tools
from tests.support.effort import bounded_effort
from tests.support.requirement import requirement
from wicketgate.catalog.shortlist import MOST_SHOWN
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext
from wicketgate.upstreams.embedded import StubUpstream

QUERY = "get one and list all of the things that a person may find"
WORDS = "Get one of all the things that a person may find, and list them."
CALLS = 12_000
"""Enough for the hits of an answer; each tool of the catalog asked about once a word would take more."""


@requirement("OPS-300")
@pytest.mark.parametrize("caller", [ALL, SOME], ids=["all", "some"])
@pytest.mark.parametrize("sent", [False, True], ids=["ranked", "sent"])
async def test_a_search_does_nothing_on_the_loop_that_grows_with_the_catalog(caller: CallContext, sent: bool) -> None:
    runtime = ProxyRuntime(StubUpstream(tools(WORDS)))
    await runtime.refresh_catalog()
    await search(runtime, QUERY, 5, caller, sent=sent)
    with bounded_effort(calls=CALLS):
        found = await search(runtime, QUERY, 5, caller, sent=sent)
    assert found["matched"] == len(runtime.catalog().tools) // (1 if caller is ALL else 2)
    router, visible = runtime.catalog().router, runtime.visible(caller)
    inline = router.explained(QUERY, MOST_SHOWN, visible)
    assert [hit["id"] for hit in found["hits"]][:5] == [reason.tool_id for reason in inline.reasons][:5]

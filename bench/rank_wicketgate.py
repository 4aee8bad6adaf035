"""This program in the quality table: ``tool_browse`` of the gateway face."""

from collections.abc import Callable, Sequence

from bench.gated_set import GatedSet, gated
from bench.ranking import RANKED, Answer
from bench.routing_sets import Tool


class Wicketgate:
    remarks = ("the whole call of tool_browse in process; ranked by a second call with top_k 10, not timed",)
    _set: GatedSet

    async def build(self, tools: Sequence[Tool]) -> None:
        self._set = await gated(tools)

    async def browse(self, query: str) -> Answer:
        page = await self._set.browse({"query": query})
        return Answer(page.keys, page.text)

    async def ranked(self, query: str, answer: Answer) -> Sequence[str]:
        return (await self._set.browse({"query": query, "top_k": RANKED})).keys


ranking: Callable[[], Wicketgate] = Wicketgate

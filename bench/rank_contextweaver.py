"""contextweaver in the quality table: ``tool_browse`` of its ProxyRuntime, with its defaults."""

import re
from collections.abc import Callable, Sequence

from bench.contest import Refused
from bench.contextweaver_peer import Contextweaver
from bench.ranking import Answer
from bench.routing_sets import Tool, namespaces


class RankedContextweaver:
    remarks: Sequence[str]
    _keys: dict[str, str]
    _peer: Contextweaver

    async def build(self, tools: Sequence[Tool]) -> None:
        servers = namespaces(tools)
        definitions = []
        self._keys = {}
        for tool in tools:
            name = f"{servers[tool['server']]}.{re.sub(r'[^A-Za-z0-9_.-]', '_', tool['name'])}"
            self._keys.setdefault(name, tool["key"])
            schema = tool.get("inputSchema") or {"type": "object", "properties": {}}
            definitions.append({"name": name, "description": tool["description"], "inputSchema": schema})
        self._peer = Contextweaver(cache_stable=False)
        took = await self._peer.refresh(definitions)
        self.remarks = [
            "the whole call of its tool_browse in process; characters of names that its ids refuse are given as _",
            *([f"it took {took:,} of {len(tools):,} tools"] if took < len(tools) else []),
        ]

    async def browse(self, query: str) -> Answer:
        try:
            answer = await self._peer.browse({"query": query}, "bench")
        except Refused:
            return Answer([], "")
        keys = [self._keys[self._peer.name_of(card)] for card in self._peer.cards(answer)]
        return Answer(keys, str(answer["content"][0]["text"]))

    async def ranked(self, query: str, answer: Answer) -> Sequence[str]:
        return answer.keys


ranking: Callable[[], RankedContextweaver] = RankedContextweaver

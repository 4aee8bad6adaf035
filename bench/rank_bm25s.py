"""bm25s in the quality table: one flat text a tool, its words parted, English stop words."""

import re
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from bench.ranking import RANKED, Answer
from bench.routing_sets import Tool

_bm25s: Any = import_module("bm25s")


class Bm25s:
    remarks = ("a library, which shows a model nothing; over server, name (parted into words) and description",)
    _index: Any
    _keys: Sequence[str]

    async def build(self, tools: Sequence[Tool]) -> None:
        self._keys = [tool["key"] for tool in tools]
        self._index = _bm25s.BM25()
        texts = [f"{_parted(tool['server'])} {_parted(tool['name'])} {tool['description']}" for tool in tools]
        self._index.index(_tokens(texts), show_progress=False)

    async def browse(self, query: str) -> Answer:
        found, scores = self._index.retrieve(_tokens([query]), k=min(RANKED, len(self._keys)), show_progress=False)
        pairs = zip(found[0], scores[0], strict=True)
        return Answer([self._keys[number] for number, score in pairs if score > 0], None)

    async def ranked(self, query: str, answer: Answer) -> Sequence[str]:
        return answer.keys


ranking: Callable[[], Bm25s] = Bm25s


def _tokens(texts: Sequence[str]) -> Any:
    return _bm25s.tokenize(texts, stopwords="en", show_progress=False)


def _parted(name: str) -> str:
    return re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name))

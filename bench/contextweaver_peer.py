"""contextweaver 0.18.2 as a contestant: its ProxyRuntime behind its own ``tool_browse`` dispatch, cache-stable.

Runs in the environment that ``bench.peers`` makes; this program's packages are not there.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from bench.contest import Refused

logging.disable(logging.WARNING)  # it logs a line for each schema that it finds odd

_gateway: Any = import_module("contextweaver.adapters.mcp_gateway")
_runtime: Any = import_module("contextweaver.adapters.proxy_runtime")
_tokens: Any = import_module("contextweaver.tokens")


class Contextweaver:
    def __init__(self, *, cache_stable: bool = True) -> None:
        self._upstream = _Given()
        self._runtime = _runtime.ProxyRuntime(self._upstream, cache_stable=cache_stable)

    @property
    def remarks(self) -> Sequence[str]:
        counter = _tokens.estimator_name(_tokens.get_token_counter())
        return (
            f"counts tokens by {counter}, when browsing; its seen-set is the runtime's own, never ending",
            "its Router walks a tree with a beam of 3, its default: a wider one finds more",
            "every refresh builds anew, apart from a tree that is cached",
        )

    async def refresh(self, definitions: list[dict[str, Any]]) -> int:
        self._upstream.definitions = definitions
        return int(await self._runtime.refresh_catalog())

    async def browse(self, arguments: Mapping[str, Any], session: str) -> Mapping[str, Any]:
        try:
            result: Mapping[str, Any] = await _gateway.dispatch_meta_tool(self._runtime, "tool_browse", dict(arguments))
        except Exception as error:  # a card that passes its hard cap is thrown across its door
            raise Refused from error
        if result["isError"]:
            raise Refused
        return result

    def cards(self, answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
        cards: Sequence[Mapping[str, Any]] = json.loads(answer["content"][0]["text"])
        return cards

    def name_of(self, card: Mapping[str, Any]) -> str:
        """The upstream's name of a card's tool; the card cuts it off."""
        return str(self._runtime.catalog.get(card["id"]).name)

    def path_of(self, card: Mapping[str, Any]) -> str:
        return str(card["id"]).removeprefix("root")


contestant: Callable[[], Contextweaver] = Contextweaver


class _Given:
    """Its UpstreamCall, as far as a refresh needs it."""

    def __init__(self) -> None:
        self.definitions: list[dict[str, Any]] = []

    async def list_tools(self) -> list[dict[str, Any]]:
        definitions, self.definitions = self.definitions, []
        return definitions

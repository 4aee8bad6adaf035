"""One validated call on its way to its upstream: cached, timed, tried again where that is safe (DESIGN §1).

What was decided about an upstream by its operator (CallPolicy) is carried out here and nowhere else.
"""

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from app.catalog.catalog import Catalog
from app.catalog.selectable import SelectableItem
from app.errors import GatewayError, UpstreamRefused
from app.gateway.call_policy import CallPolicy
from app.gateway.fleet import MultiplexUpstream
from app.gateway.ports import AnswerTime, CallContext, Caller
from app.gateway.result_cache import ResultCache
from app.results.firewall import is_bulky

log = logging.getLogger("wicketgate.dispatch")


class Dispatcher:
    """*policies* by upstream name; *default* for the others. Without *cache* nothing is ever kept."""

    def __init__(
        self,
        fleet: MultiplexUpstream,
        policies: Mapping[str, CallPolicy] | None = None,
        *,
        default: CallPolicy | None = None,
        cache: ResultCache | None = None,
    ) -> None:
        self._fleet = fleet
        self._policies = dict(policies or {})
        self._default = default or CallPolicy()
        self._cache = cache

    def policy(self, server: str) -> CallPolicy:
        return self._policies.get(server, self._default)

    def follow(self, policies: Mapping[str, CallPolicy]) -> None:
        """Other policies from now on; calls under way go on as they began."""
        self._policies = dict(policies)
        self.forget_results()

    def forget_results(self) -> None:
        if self._cache is not None:
            self._cache.clear()

    async def call(
        self, catalog: Catalog, item: SelectableItem, arguments: Mapping[str, Any], context: CallContext
    ) -> tuple[Mapping[str, Any], bool]:
        """The upstream's result, and whether it came from the cache.

        Raises UpstreamUnavailable, UpstreamTimeout, UpstreamError or RateLimited, with the tool's id as path.
        """
        policy = self.policy(item.server)
        key = None
        if self._cache is not None and policy.caches(item.upstream_name):
            key = self._cache.key(catalog, item, arguments, context, shared=policy.cache_shared)
        if self._cache is None or key is None:
            return await self._with_retries(policy, item, arguments, context), False
        if (kept := self._cache.get(key)) is not None:
            return kept, True
        questions = _Questions(context.caller)
        if context.caller.answers == "now":
            # Others cannot be asked, and an upstream knows the silent caller by identity.
            context = replace(context, caller=questions)
        result = await self._with_retries(policy, item, arguments, context)
        if not questions.asked and not is_bulky(result):
            self._cache.put(key, result, policy.cache_ttl_s)
        return result, False

    async def _with_retries(
        self, policy: CallPolicy, item: SelectableItem, arguments: Mapping[str, Any], context: CallContext
    ) -> Mapping[str, Any]:
        failed = 0
        while True:
            try:
                return await self._once(policy, item, arguments, context)
            except GatewayError as error:
                failed += 1
                error.path = item.id
                if isinstance(error, UpstreamRefused):
                    error.name = item.upstream_name
                log.warning("%s: %s, attempt %d", item.id, error.code, failed)
                if not policy.retry.may_retry(error, item, failed):
                    raise
            await asyncio.sleep(policy.retry.wait_s(failed))

    async def _once(
        self, policy: CallPolicy, item: SelectableItem, arguments: Mapping[str, Any], context: CallContext
    ) -> Mapping[str, Any]:
        timeout_s = policy.deadline_s(item.upstream_name)
        return await self._fleet.call_tool(item.server, item.upstream_name, arguments, context, timeout_s)


class _Questions:
    """Implements Caller: *caller*, and a note of the first question to it."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self.asked = False

    @property
    def answers(self) -> AnswerTime:
        return self._caller.answers

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        await self._caller.progress(progress, total, message)

    async def log(self, level: str, data: object, logger: str | None) -> None:
        await self._caller.log(level, data, logger)

    async def ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self.asked = True
        return await self._caller.ask(method, params)

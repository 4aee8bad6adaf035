"""What the configuration says of upstreams, as the core takes it: limits, breakers, policies, names."""

import os
import random
from time import monotonic

from wicketgate.config.lock_file import pin_policy
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.settings.access import access_policy
from wicketgate.config.upstreams import make_upstream
from wicketgate.errors import ConfigError
from wicketgate.fleet.guards import BreakerPolicy
from wicketgate.fleet.member import Member, UpstreamLimits
from wicketgate.gateway.options import CallPolicy, RetryPolicy, RuntimePolicies
from wicketgate.net import Outgoing
from wicketgate.ports import Upstream

_LISTING_S = 30.0


def make_member(settings: UpstreamSettings, outgoing: Outgoing) -> Member:
    return guarded(make_upstream(settings, outgoing), upstream_limits(settings))


def make_members(settings: Settings, outgoing: Outgoing) -> list[Member]:
    """Raises ConfigError."""
    return [make_member(upstream, outgoing) for upstream in settings.upstreams if upstream.enabled]


def outgoing_rules(settings: Settings) -> Outgoing:
    """The rules of all connections that go out, with the proxies of the environment. Raises ConfigError."""
    outgoing = Outgoing.from_environment(os.environ, settings.network.ca_file)
    try:
        outgoing.check()
    except OSError:
        raise ConfigError("network.ca_file: there is no readable file of PEM certificates at this path") from None
    return outgoing


def guarded(upstream: Upstream, limits: UpstreamLimits | None = None) -> Member:
    return Member(upstream, limits, now=monotonic, chance=random.random)


def upstream_limits(settings: UpstreamSettings) -> UpstreamLimits:
    breaker = settings.breaker
    return UpstreamLimits(
        settings.max_concurrent,
        settings.max_queued,
        max(_LISTING_S, settings.connect_timeout_s + 1),  # the upstream's own deadline comes first, with its own words
        BreakerPolicy(breaker.failures, breaker.pause_s, breaker.max_pause_s),
    )


def inferred_names(settings: Settings) -> frozenset[str]:
    """Upstreams whose namespaces the S1 table decides."""
    return frozenset(upstream.name for upstream in settings.upstreams if upstream.namespace == "infer")


def runtime_policies(settings: Settings) -> RuntimePolicies:
    """All that a runtime runs by. Reads the lock file of pins."""
    return RuntimePolicies(
        calls=call_policies(settings),
        default_call=CallPolicy(settings.engine.tool_timeout_s),
        access=access_policy(settings.access),
        pins=pin_policy(settings.pins),
        inferred=inferred_names(settings),
        per_actor=settings.quota.per_actor,
        per_tool=settings.quota.per_tool,
    )


def call_policies(settings: Settings) -> dict[str, CallPolicy]:
    """How calls are made, by upstream name."""
    return {
        upstream.name: CallPolicy(
            timeout_s=upstream.timeout_s or settings.engine.tool_timeout_s,
            tool_timeouts_s=upstream.tool_timeouts_s,
            retry=RetryPolicy(
                upstream.retry.attempts, upstream.retry.base_s, declared_safe=upstream.retry.declared_safe
            ),
            cached_tools=upstream.cache.tools,
            cache_ttl_s=upstream.cache.ttl_s,
            cache_shared=upstream.cache.shared,
            tolerant_args=upstream.tolerant_args,
        )
        for upstream in settings.upstreams
    }

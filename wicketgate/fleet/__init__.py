"""The fleet: upstreams as members, each with places, a breaker and a deadline, so that one costs the others nothing.

Public: ``multiplex.MultiplexUpstream``, ``member.Member`` with ``member.UpstreamLimits``, ``call_policy.CallPolicy``,
and ``feature_fleet.FeatureFleet`` for resources and prompts.
"""

"""The fleet: upstreams as members, each with slots, a breaker and a deadline, so that one costs the others nothing.

Public: ``member.MultiplexUpstream``, ``member.Member`` with ``member.UpstreamLimits``, and
``features.FeatureFleet`` for resources and prompts.
"""

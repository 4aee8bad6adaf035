"""The promises that a Redis does not keep of what it acknowledged, by its settings (OPS-162, OPS-187)."""

from collections.abc import Mapping, Sequence

from wicketgate.storage.redis.url import Kind

SETTINGS = ("appendonly", "appendfsync", "maxmemory", "maxmemory-policy", "min-replicas-to-write")
"""The settings that decide."""


def shortfalls(kind: Kind, settings: Sequence[Mapping[str, str]] | None) -> tuple[str, ...]:
    """Lines for the operator, each with the setting that mends it; none if a used approval stays used, and a run with a
    key and the claims of its calls stay known, whatever dies.

    *settings* are those of ``SETTINGS`` that the server gave, or each master of a Cluster; None if one gave none.
    """
    if settings is None:
        unknown = "whether its crash brings back used approvals and repeats calls of runs with a key is unknown"
        return (f"Redis does not tell its settings (CONFIG GET), so {unknown}",)
    # Of a Cluster each line once, whichever master lacks it.
    return tuple(dict.fromkeys(line for each in settings for line in _shortfalls(kind, each)))


def _shortfalls(kind: Kind, settings: Mapping[str, str]) -> Sequence[str]:
    lines = []
    if settings.get("appendonly") != "yes":
        lines.append(
            "a restart of Redis may bring back used approvals and forget runs with a key, which then run again: "
            "set appendonly yes"
        )
    elif settings.get("appendfsync") != "always":
        lines.append(
            "a power cut at Redis may bring back approvals used in its last second, and forget the keys and calls "
            "claimed in it: set appendfsync always"
        )
    if settings.get("maxmemory", "0") != "0" and settings.get("maxmemory-policy") != "noeviction":
        lines.append("a full Redis may drop used approvals and runs with a key: set maxmemory-policy noeviction")
    if kind == "sentinel" and settings.get("min-replicas-to-write", "0") == "0":
        lines.append(
            "a disconnected master continues to accept approvals and claims of runs with a key: "
            "set min-replicas-to-write 1"
        )
    if kind == "cluster":
        lines.append(
            "a failover of the Cluster may bring back approvals used just before, and forget keys and calls claimed "
            "just before: use one Redis, or Sentinels"
        )
    return lines

"""Weighs the terms of a tool: BM25 over its name, namespace, description and arguments.

What a tool contributes depends on that tool alone: lengths are measured against fixed ones, not against the
catalog's average, so that a refresh touches only the tools that changed.
"""

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import Any, NamedTuple

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.words import content_terms, terms

# What is read of a definition at most. One that is larger is read up to here, never refused.
MAX_NAME_CHARS = 256
MAX_DESCRIPTION_CHARS = 4_096
MAX_SCHEMA_NODES = 300
MAX_SCHEMA_DEPTH = 6
MAX_SCHEMA_CHARS = 8_192
MAX_ARGUMENT_CHARS = 512
MAX_ENUM_VALUES = 20


class _Field(NamedTuple):
    """*pivot* is the length in terms at which a hit counts its plain weight; *slope* how much longer ones lose."""

    weight: float
    slope: float
    pivot: float


_NAME = _Field(2.0, 0.5, 3)
_NAMESPACE = _Field(1.5, 0.3, 2)
_DESCRIPTION = _Field(1.0, 0.6, 20)
_ARGUMENTS = _Field(0.5, 0.75, 4)
_ARGUMENT_TEXTS = _Field(0.5, 0.9, 20)

_SATURATION = 2.0  # BM25's k1
_MATCH_BONUS = 0.2  # for every query term that a tool has at all
_NAME_BONUS = 1.0  # shared out over the terms of the name: twins differ in how much of the name was asked for
IDEAL_IMPACT = _SATURATION + 1 + _MATCH_BONUS + _NAME_BONUS
"""What no impact exceeds."""

_GRAIN = 1024  # impacts are kept in 1024ths: some four thousand floats are shared by every posting


def impacts_of(item: SelectableItem) -> dict[str, float]:
    """The weight that each term of a tool adds to its score, before the term's rarity."""
    name = terms(_own_name(item)[:MAX_NAME_CHARS])
    argument_names, argument_texts = _schema_texts(item.args_schema)
    description = item.description if isinstance(item.description, str) else ""
    weights: defaultdict[str, float] = defaultdict(float)
    for field, found in (
        (_NAME, name),
        (_NAMESPACE, terms(item.namespace[:MAX_NAME_CHARS])),
        (_DESCRIPTION, content_terms(description[:MAX_DESCRIPTION_CHARS])),
        (_ARGUMENTS, content_terms(argument_names)),
        (_ARGUMENT_TEXTS, content_terms(argument_texts)),
    ):
        each = field.weight / (1 - field.slope + field.slope * len(found) / field.pivot)
        for term in found:
            weights[term] += each
    named = frozenset(name)
    return {term: _impact(weight, 1 / len(named) if term in named else 0.0) for term, weight in sorted(weights.items())}


def _impact(weight: float, share_of_name: float) -> float:
    saturated = weight * (_SATURATION + 1) / (weight + _SATURATION)
    return _LEVELS[round(_GRAIN * (saturated + _MATCH_BONUS + _NAME_BONUS * share_of_name))]


_LEVELS = tuple(level / _GRAIN for level in range(round(_GRAIN * IDEAL_IMPACT) + 1))


def _own_name(item: SelectableItem) -> str:
    """The upstream's spelling, whose capitals part words, without the namespace that it may repeat."""
    name, prefix = item.upstream_name, item.namespace
    if len(name) > len(prefix) + 1 and name.lower().startswith(prefix) and name[len(prefix)] in "._-/:":
        return name[len(prefix) + 1 :]
    return name


def _schema_texts(schema: object) -> tuple[str, str]:
    """Names of the arguments; descriptions and enum values at every level. Malformed parts are passed over.

    Reads the nearest MAX_SCHEMA_NODES schemas, down to MAX_SCHEMA_DEPTH, and MAX_SCHEMA_CHARS of text of each kind;
    ``$ref`` is not followed.
    """
    names: list[str] = []
    texts: list[str] = []
    level: list[object] = [schema]
    nodes = 0
    for depth in range(MAX_SCHEMA_DEPTH):
        below: list[object] = []
        for node in level[: MAX_SCHEMA_NODES - nodes]:
            nodes += 1
            if not isinstance(node, Mapping):
                continue
            if depth:
                texts += _node_texts(node)
            properties = node.get("properties")
            if isinstance(properties, Mapping):
                for name, child in islice(properties.items(), MAX_SCHEMA_NODES):
                    if not depth and isinstance(name, str):
                        names.append(name[:MAX_NAME_CHARS])
                    below.append(child)
            if "items" in node:
                below.append(node["items"])
            for key in ("anyOf", "oneOf", "allOf"):
                choices = node.get(key)
                if isinstance(choices, list):
                    below += choices[:MAX_SCHEMA_NODES]
        level = below
    return " ".join(names)[:MAX_SCHEMA_CHARS], " ".join(texts)[:MAX_SCHEMA_CHARS]


def _node_texts(node: Mapping[Any, Any]) -> list[str]:
    values = node.get("enum")
    found = values[:MAX_ENUM_VALUES] if isinstance(values, list) else []
    return [text[:MAX_ARGUMENT_CHARS] for text in [node.get("description"), *found] if isinstance(text, str)]

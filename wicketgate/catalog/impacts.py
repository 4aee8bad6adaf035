"""The impacts of terms in a tool: the BM25 weight of each over name, namespace, the operator's words, description and
arguments.

Lengths are measured against fixed ones, so an impact depends on that tool alone.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.words import content_terms, terms

# Bounds of the definition that is read. A larger one is read up to here, never refused.
MAX_NAME_CHARS = 256
MAX_DESCRIPTION_CHARS = 4_096
MAX_SAID_CHARS = 16_384
MAX_SCHEMA_NODES = 300
MAX_SCHEMA_DEPTH = 6
MAX_SCHEMA_CHARS = 8_192
MAX_ARGUMENT_CHARS = 512
MAX_ENUM_VALUES = 20


FieldName = Literal["name", "namespace", "said", "description", "arguments"]


class _Field(NamedTuple):
    """*pivot* is the length in terms at which a hit counts its plain weight; *slope* how much longer ones lose."""

    name: FieldName
    weight: float
    slope: float
    pivot: float


_NAME = _Field("name", 2.0, 0.5, 3)
_NAMESPACE = _Field("namespace", 1.5, 0.3, 2)
_SAID = _Field("said", 2.0, 0.2, 4)  # without the bonus of a name
_DESCRIPTION = _Field("description", 1.0, 0.6, 20)
_ARGUMENTS = _Field("arguments", 0.5, 0.75, 4)
_ARGUMENT_TEXTS = _Field("arguments", 0.5, 0.9, 20)

_SATURATION = 2.0  # BM25's k1
_MATCH_BONUS = 0.2  # for every query term that a tool has at all
_NAME_BONUS = 1.0  # shared out over the terms of the name: twins differ in how much of the name was asked for
IDEAL_IMPACT = _SATURATION + 1 + _MATCH_BONUS + _NAME_BONUS
"""The greatest impact that a term can have."""

_GRAIN = 1024  # impacts are kept in 1024ths: some four thousand floats are shared by every posting


def impacts_of(item: SelectableItem, said: Sequence[str] = ()) -> tuple[dict[str, float], int]:
    """The weight that each term of a tool adds to its score, before the term's rarity, and the number of terms of its
    name, which come first; *said* are texts of the operator."""
    weights: defaultdict[str, float] = defaultdict(float)
    by_field = _terms_by_field(item, said)
    _, name = by_field[0]
    for field, found in by_field:
        each = field.weight / (1 - field.slope + field.slope * len(found) / field.pivot)
        for term in found:
            weights[term] += each
    named = frozenset(name)
    each_of_name = 1 / max(1, len(named))
    impacts = {term: _impact(weight, each_of_name if term in named else 0.0) for term, weight in weights.items()}
    return impacts, len(named)


def fields_of(item: SelectableItem, said: Sequence[str] = ()) -> dict[str, tuple[FieldName, ...]]:
    """The places where each term of a tool stands, in the order in which they count."""
    places: defaultdict[str, dict[FieldName, None]] = defaultdict(dict)
    for field, found in _terms_by_field(item, said):
        for term in found:
            places[term][field.name] = None
    return {term: tuple(names) for term, names in places.items()}


def _terms_by_field(item: SelectableItem, said: Sequence[str]) -> "tuple[tuple[_Field, list[str]], ...]":
    """The name is the first."""
    argument_names, argument_texts = _schema_texts(item.args_schema)
    description = item.description if isinstance(item.description, str) else ""
    return (
        (_NAME, terms(_own_name(item)[:MAX_NAME_CHARS])),
        (_NAMESPACE, _namespace_terms(item)),
        (_SAID, _said_terms(said)),
        (_DESCRIPTION, content_terms(description[:MAX_DESCRIPTION_CHARS])),
        (_ARGUMENTS, content_terms(argument_names)),
        (_ARGUMENT_TEXTS, content_terms(argument_texts)),
    )


def _impact(weight: float, share_of_name: float) -> float:
    saturated = weight * (_SATURATION + 1) / (weight + _SATURATION)
    return _LEVELS[round(_GRAIN * (saturated + _MATCH_BONUS + _NAME_BONUS * share_of_name))]


_LEVELS = tuple(level / _GRAIN for level in range(round(_GRAIN * IDEAL_IMPACT) + 1))


def _said_terms(said: Sequence[str]) -> list[str]:
    """Each term once: ``git log`` and ``git history`` say no more of git than one of them."""
    if not said:
        return []
    text = "\n".join(said)[:MAX_SAID_CHARS]
    return list(dict.fromkeys(content_terms(text) or terms(text)))


def _own_name(item: SelectableItem) -> str:
    """The upstream's spelling, whose capitals part words, without the namespace that it may repeat."""
    name, prefix = item.upstream_name, item.namespace
    if len(name) > len(prefix) + 1 and name.lower().startswith(prefix) and name[len(prefix)] in "._-/:":
        return name[len(prefix) + 1 :]
    return name


def _namespace_terms(item: SelectableItem) -> list[str]:
    """Those of the namespace, and the parts of the configured name, of the tool's own prefix and of what the server
    calls itself where that spells it."""
    plain = _letters(item.namespace)
    found = terms(item.namespace[:MAX_NAME_CHARS])
    for spelling in (item.server, _PREFIX_END.split(item.upstream_name, maxsplit=1)[0], *item.spellings):
        if spelling != item.namespace and _letters(spelling) == plain:
            found += terms(spelling[:MAX_NAME_CHARS])
    return list(dict.fromkeys(found))


def _letters(name: str) -> str:
    return _NO_LETTERS.sub("", name.lower())


_PREFIX_END = re.compile(r"[.:/]")
_NO_LETTERS = re.compile(r"[^a-z0-9]+")


def _schema_texts(schema: object) -> tuple[str, str]:
    """Names of the arguments; descriptions and enum values at every level. Malformed parts are passed over.

    Reads the nearest MAX_SCHEMA_NODES schemas, down to MAX_SCHEMA_DEPTH, and MAX_SCHEMA_CHARS of text of each kind;
    ``$ref`` is not followed.
    """
    # Level by level, so that the nearest schemas count.
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
            # The schemas below: members, elements and alternatives.
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

"""Which tools a caller may have meant by an id that is not there (S0 §3.4, DESIGN §3 "Schemas, arguments, errors").

Models drop the hash, the version or the namespace, write another gateway's separator, or mistype a name.
"""

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

MAX_NEAR = 3
_MAX_WANTED_CHARS = 240
# Comparing two names letter by letter takes some 30 µs.
_MAX_COMPARED = 30
_LIKENESS = 0.8
_SEPARATOR = re.compile(r"__|[/.]")


def near_ids(wanted: str, ids: Collection[str], visible: Callable[[str], bool] | None = None) -> list[str]:
    """At most three of *ids* that come near to *wanted*, the nearest first.

    Those of the same name, whatever namespace, version or hash; if there are none, those with names spelled much
    alike. Only what is *visible* counts, so the answer is the same whether a tool is hidden or not there. About a
    millisecond for 10,000 ids.
    """
    if not 2 <= len(wanted) <= _MAX_WANTED_CHARS:
        return []
    namespace, names = _read(wanted)
    near = [each for name in names for each in _named(name, ids) if visible is None or visible(each)]
    if not near:
        alike = (each for each in _alike(names[-1], ids) if visible is None or visible(each))
        likeness = _likenesses(names[-1], islice(alike, _MAX_COMPARED))
        return sorted(likeness, key=lambda each: (_parts(each)[0] != namespace, -likeness[each], each))[:MAX_NEAR]
    return sorted(set(near), key=lambda each: (_parts(each)[0] != namespace, each))[:MAX_NEAR]


def _parts(tool_id: str) -> tuple[str, str]:
    """Namespace and name of what looks like an id."""
    plain = tool_id.partition("#")[0].partition("@")[0].strip()
    namespace, colon, name = plain.partition(":")
    return (namespace, name) if colon else ("", plain)


def _read(wanted: str) -> tuple[str, list[str]]:
    """The namespace and the names that *wanted* can stand for: ``github.create_issue`` is also a name of github."""
    namespace, name = _parts(wanted)
    before, *after = _SEPARATOR.split(name, maxsplit=1)
    if namespace or not after or not after[0]:
        return namespace, [name]
    return before, [name, after[0]]


def _named(name: str, ids: Collection[str]) -> Iterator[str]:
    key = f":{name}"
    # The first test is cheap, and few pass it.
    return (each for each in ids if key in each and _parts(each)[1] == name)


def _alike(name: str, ids: Collection[str]) -> Iterator[str]:
    """Ids whose names begin or end like *name* and are about as long; a slip of the pen leaves one of the two."""
    part = max(len(name) * 2 // 5, 3)
    head, tail = f":{name[:part]}", name[-part:]
    return (each for each in ids if (head in each or tail in each) and abs(len(_parts(each)[1]) - len(name)) <= 3)


def _likenesses(name: str, ids: Iterable[str]) -> dict[str, float]:
    """From 0.8 to 1, of those whose names are so much alike."""
    likeness = {}
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(name.lower())
    for each in ids:
        matcher.set_seq1(_parts(each)[1].lower())
        # The second is an upper bound of the third, and a fifth of its cost.
        if matcher.real_quick_ratio() >= _LIKENESS and matcher.quick_ratio() >= _LIKENESS:
            ratio = matcher.ratio()
            if ratio >= _LIKENESS:
                likeness[each] = ratio
    return likeness

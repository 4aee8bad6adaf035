"""The words of tools besides their definitions: the operator's (BROWSE-53), otherwise those that a model wrote
(BROWSE-100).

A pattern fits a tool as in an access rule, under any of its names, and with the version and hash of its id too. All
patterns that fit count.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from wicketgate.catalog.name_patterns import compile_glob, is_plain, split_pattern
from wicketgate.catalog.selectable import SelectableItem


class SaidWords:
    """Lists of texts by pattern. Plain patterns are looked up, so that a thousand cost a tool no more than ten.

    *written* are texts by ``SelectableItem.digest``, for tools that no pattern fits.
    """

    def __init__(
        self, words: Mapping[str, Sequence[str]] | None = None, written: Mapping[str, str] | None = None
    ) -> None:
        """Raises ValueError for a malformed pattern."""
        self.words = {match: tuple(say) for match, say in (words or {}).items()}
        self._written = written or {}
        self._by_place = tuple(self.words.values())
        self._plain: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
        self._globs = []
        for place, match in enumerate(self.words):
            namespace, name = split_pattern(match)
            if is_plain(namespace) and is_plain(name):
                self._plain[namespace, name].append(place)
            else:
                self._globs.append((compile_glob(namespace), compile_glob(name), place))
        self._in_namespace = lru_cache(maxsize=1_024)(self._globs_of)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SaidWords) and (other.words, other._written) == (self.words, self._written)

    def __hash__(self) -> int:
        return hash(tuple(self.words))

    def __bool__(self) -> bool:
        return bool(self.words or self._written)

    def of(self, item: SelectableItem) -> tuple[str, ...]:
        """Returns the words that are said of the tool, in the order in which they were given."""
        places: set[int] = set()
        for namespace, name in _names(item):
            places.update(self._plain.get((namespace, name), ()))
            places.update(place for fits, place in self._in_namespace(namespace) if fits is None or fits(name))
        if not places:
            return (text,) if (text := self._written.get(item.digest)) else ()
        return tuple(text for place in sorted(places) for text in self._by_place[place])

    def _globs_of(self, namespace: str) -> tuple[tuple[Callable[[str], bool] | None, int], ...]:
        return tuple((fits_name, place) for fits, fits_name, place in self._globs if fits is None or fits(namespace))


def _names(item: SelectableItem) -> Iterator[tuple[str, str]]:
    yield item.namespace, item.id.partition(":")[2]
    for namespace, own in item.names:
        for name in own:
            yield namespace, name

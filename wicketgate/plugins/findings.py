"""Finding patterns in texts in time linear in the text, whatever it holds, and replacing what was found.

RE2 keeps the bound: its automata never go back. Patterns are for the UTF-8 bytes of a text.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import re2  # type: ignore[import-untyped]  # google-re2 ships no types

Judge = Callable[[bytes], str | None]
"""What a match is, such as ``email``; None if it only looks like something."""

_BETWEEN = "\n\x00\n"
"""Stands between texts that are searched as one; nothing that is looked for begins or ends with it."""

_DENSE_FINDINGS = 500
_DENSE_BYTES = 24
"""A text that holds more than so many findings, one in every so many bytes, is nearly nothing else: it is replaced
whole, for each finding costs a microsecond or two of its own."""


class Scanner:
    """*patterns* must not match the empty text. *marker* is put in place of a finding, by its kind."""

    def __init__(self, patterns: Iterable[str], judge: Judge, marker: Callable[[str], str]) -> None:
        options = re2.Options()
        options.log_errors = False
        self._pattern = re2.compile("|".join(f"(?:{pattern})" for pattern in patterns).encode(), options)
        self._judge = judge
        self._marker = marker

    def might_hold(self, texts: Sequence[str]) -> Sequence[str]:
        """Those of them in which a closer look could find anything; much cheaper than looking at each."""
        joined = _BETWEEN.join(texts)
        data = joined.encode("utf-8", "surrogatepass")
        match = self._pattern.search(data)
        if match is None or len(texts) == 1:
            return texts if match else ()
        plain = len(data) == len(joined)
        lengths = [len(text if plain else text.encode("utf-8", "surrogatepass")) + len(_BETWEEN) for text in texts]
        ends = list(accumulate(lengths))
        suspects: list[str] = []
        while match is not None:
            start, stop = match.span()
            first, last = bisect_right(ends, start), bisect_left(ends, stop)
            suspects += texts[first : last + 1]
            # What else the last of them holds does not matter here.
            match = self._pattern.search(data, ends[last]) if ends[last] < len(data) else None
        return suspects

    def replace(self, text: str, found: Counter[str]) -> str:
        """*text* with markers in place of findings, counted by kind in *found*; the same object if there are none."""
        data = text.encode("utf-8", "surrogatepass")
        pieces: list[bytes] = []
        end = 0
        kinds: Counter[str] = Counter()
        for match in self._pattern.finditer(data):
            start, stop = match.span()
            kind = self._judge(data[start:stop])
            if kind is None:
                continue
            kinds[kind] += 1
            if len(pieces) > 2 * _DENSE_FINDINGS and stop < len(pieces) // 2 * _DENSE_BYTES:
                found.update(kinds)
                return self._marker("text")
            pieces += (data[end:start], self._marker(kind).encode())
            end = stop
        if not pieces:
            return text
        found.update(kinds)
        return b"".join((*pieces, data[end:])).decode("utf-8", "surrogatepass")

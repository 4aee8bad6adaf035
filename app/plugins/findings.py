"""Finding patterns in texts in time linear in the text, whatever it holds, and replacing what was found.

RE2 keeps the bound: its automata never go back. Patterns are for the UTF-8 bytes of a text.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import re2  # type: ignore[import-untyped]  # google-re2 ships no types

Judge = Callable[[bytes], str | None]
"""What a match is, such as ``email``; None if it only looks like something."""

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

    def might_hold(self, texts: Iterable[str]) -> bool:
        """Whether a closer look could find anything in one of them; much cheaper than looking at each."""
        return self._pattern.search("\n\x00\n".join(texts).encode("utf-8", "surrogatepass")) is not None

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

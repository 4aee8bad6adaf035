"""The number of examples of a property test. ``make test`` repeats the same ones; ``make explore`` tries new ones."""

import os

_LEAST = 15


def examples(most: int) -> int:
    """Returns how many examples a test is tried with that would get *most* if time did not matter.

    Half for ``make test``, 15 for ``make quick``, and EXAMPLES for ``make explore``.
    """
    match os.environ.get("PROPERTIES", "repeat"):
        case "quick":
            return _LEAST
        case "explore":
            return int(os.environ.get("EXAMPLES", "1000"))
    return max(_LEAST, most // 2)

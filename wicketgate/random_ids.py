"""Ids of requests and calls: random, made many at a time, because the system is asked for each piece of chance."""

import os

_AT_ONCE = 256
_BYTES = 12

_made: list[str] = []
# A process that is forked off would give the same ones.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_made.clear)


def random_id() -> str:
    """Returns 24 hexadecimal digits that nobody can guess. May be called in any thread."""
    try:
        return _made.pop()
    except IndexError:
        digits = os.urandom(_BYTES * _AT_ONCE).hex()
        each = 2 * _BYTES
        _made.extend(digits[at : at + each] for at in range(each, len(digits), each))
        return digits[:each]

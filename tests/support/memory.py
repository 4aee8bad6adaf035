"""Count what this process holds."""

import gc
import sys


def held_blocks() -> int:
    """The blocks of small objects that are in use, garbage left out.

    Only a difference says anything, and only if what is remembered on purpose was full before: other tests left their
    own things in this process.
    """
    gc.collect()
    return sys.getallocatedblocks()

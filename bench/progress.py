"""Lines on stderr that say what a benchmark does and how long it took."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def step(what: str) -> Iterator[None]:
    print(f"{what} ...", end="", file=sys.stderr, flush=True)
    began = time.perf_counter()
    try:
        yield
    finally:
        print(f" {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)

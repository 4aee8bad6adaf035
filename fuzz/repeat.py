"""``python -m fuzz.repeat TARGET FILE...``: the target with these inputs, without coverage, for a debugger."""

import sys
from pathlib import Path

from fuzz.targets import TARGETS

if __name__ == "__main__":
    for file in sys.argv[2:]:
        TARGETS[sys.argv[1]](Path(file).read_bytes())

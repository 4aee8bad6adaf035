"""Environments of their own for what is compared with this program: pinned, below ``bench/out``."""

import subprocess
import sys
import venv
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

_INSTALL_BOUND_S = 600


def environment(folder: Path, requirements: Sequence[str]) -> Path | str:
    """Its Python, with *requirements* installed when they are not there yet; or why there is none."""
    python = folder / "bin" / "python"
    wanted = " ".join(requirements)
    done = folder / f".done-{sha256(wanted.encode()).hexdigest()[:12]}"
    if not done.exists():
        print(f"Installing {wanted} into {folder} ...", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        try:
            subprocess.run(
                [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check", *requirements],
                check=True,
                timeout=_INSTALL_BOUND_S,
            )
        except (subprocess.SubprocessError, OSError):
            return f"{wanted} could not be installed"
        done.touch()
    return python

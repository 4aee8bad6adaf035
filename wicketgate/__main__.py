"""Starts the service: the command ``wicketgate``, and ``python -m wicketgate``.

The service stands beside this package in the repository and below it in an installed wheel (``hatch_build.py`` moves
it there), so its name is known at run time only. It is looked up by name, when this is run and not when it is imported,
so the library still imports no web framework. Besides, only ``wicketgate.create_app`` names the service.
"""

import gc
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_FOREIGN_COMMAND = "httpx._main"


def main() -> None:
    """Run the command line of the service."""
    gc.disable()  # what is imported stays, and looking for garbage in it is a tenth of the time
    # httpx would import a command line of its own, with rich and pygments: a twentieth. It does without.
    sys.modules[_FOREIGN_COMMAND] = None  # type: ignore[assignment]
    try:
        command_line: Callable[[], None] = import_module(f"{_service()}.cli").main
    except KeyboardInterrupt:  # the imports take a moment, and a command catches it only when it has begun
        sys.exit(130)
    finally:
        del sys.modules[_FOREIGN_COMMAND]
        gc.freeze()
        gc.enable()
    command_line()


def _service() -> str:
    """Return the name of the service's package. Exits if another package of its name hides it."""
    if (_HERE / "app").is_dir():
        return "wicketgate.app"
    spec = find_spec("app")
    if spec is None or spec.origin is None or Path(spec.origin).resolve().parent != _HERE.parent / "app":
        sys.exit(
            f"wicketgate: this is a checkout, and its package 'app' in {_HERE.parent} is not the one that Python finds "
            "here. Run it from the checkout, or install the wheel (pip install .), which needs no such name"
        )
    return "app"


if __name__ == "__main__":
    main()

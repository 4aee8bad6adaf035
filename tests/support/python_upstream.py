"""Functions of Python as an upstream, in a module that is written for it."""

import itertools
from pathlib import Path

_numbers = itertools.count()


def python_upstream(folder: Path, *tools: tuple[str, str, str], name: str = "local") -> dict[str, str]:
    """The upstream *name* over *tools*: each a name, its arguments and its words. A tool answers with its arguments.

    The module has a name of its own each time, because Python reads one only once.
    """
    module = f"tools_{folder.name.replace('-', '_')}_{next(_numbers)}"
    text = "from wicketgate.tools import ToolRegistry\nregistry = ToolRegistry()\n"
    for tool, arguments, words in tools:
        text += f"@registry.tool\ndef {tool}({arguments}) -> str:\n    {words!r}\n    return str(locals())\n"
    (folder / f"{module}.py").write_text(text)
    return {"name": name, "python": f"{module}:registry", "cwd": str(folder)}

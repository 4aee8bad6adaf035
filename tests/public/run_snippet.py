"""Runs a snippet of a document as its reader would type it: a statement with ``await`` in an event loop of its own.

``python -m tests.public.run_snippet FILE [OLD NEW]``: *OLD*, which must be there once, is replaced by *NEW* before.
What the snippet has assigned is returned by ``run``.
"""

import ast
import asyncio
import inspect
import sys
from pathlib import Path
from types import CodeType
from typing import Any


def run(path: Path, old: str = "", new: str = "") -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    if old:
        assert text.count(old) == 1, f"{old!r} is not in {path.name} once"
        text = text.replace(old, new)
    names: dict[str, Any] = {"__name__": "__main__", "asyncio": asyncio}
    for statement in ast.parse(text).body:
        module = ast.Module([statement], type_ignores=[])
        code: CodeType = compile(module, path.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(code, names))
        else:
            exec(code, names)
    return names


if __name__ == "__main__":
    run(Path(sys.argv[1]), *sys.argv[2:])

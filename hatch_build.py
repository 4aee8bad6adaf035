"""Builds the wheel with one top-level package: the service goes below ``wicketgate/``.

In the repository the service stands in ``app/``, ``routers/`` and ``middleware/``. Installed under these names it would
collide with packages of its users, who use the same names. So the wheel has ``wicketgate/app/`` and so on, and every
import of the three names is rewritten on the way, there and in ``wicketgate/__init__.py``. The build fails if it cannot
rewrite an import, and if a text names a module of the service (``"app.main:app"``): such a name would be wrong in the
wheel.

An editable installation is left as it is: there the three packages stand beside ``wicketgate/``.

The page for an index of packages is ``README.md`` without the links and pictures that lead to other files: an index has
none of them, and the repository has no public address that they could be given.
"""

import ast
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

PACKAGE = "wicketgate"
SERVICE = ("app", "routers", "middleware")

_DOTTED = re.compile(rf"(?<![\w./])(?:{'|'.join(SERVICE)})(?:\.\w+)+(?![\w/])")
_NAME = re.compile(rf"^(from\s+|)(?=(?:{'|'.join(SERVICE)})\b)".encode())
_AS_SCRIPT = re.compile(rf"(?:^|\s)-m\s+(?:{'|'.join(SERVICE)})\b")

_FENCE = re.compile(r"(^ *(```+|~~~+).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)
_ELSEWHERE = r"(?:[a-z][a-z0-9+.-]*:|//)"
_HERE = rf"(?!{_ELSEWHERE})"
_IMAGE = re.compile(rf"!\[([^\]]*)\]\(\s*{_HERE}[^)]*\)")
# Code that begins outside a link is taken first, and stays.
_LINK = re.compile(rf"(`+)(?:(?!\1).)+\1|\[((?:[^\[\]]|\[[^\]]*\])*)\]\(\s*({_HERE}[^)\s]*)[^)]*\)", re.DOTALL)
_HTML_IMAGE = re.compile(rf"<(?:img|source)\b[^>]*\bsrc(?:set)?=[\"']{_HERE}[^>]*>", re.IGNORECASE)
_PICTURE = re.compile(r"^</?picture>\n", re.IGNORECASE | re.MULTILINE)
_HTML_LINK = re.compile(rf"<a\b[^>]*\bhref=[\"']({_HERE}[^\"']*)[^>]*>(.*?)</a>", re.IGNORECASE | re.DOTALL)
_ALT = re.compile(r"\balt=([\"'])(.*?)\1", re.IGNORECASE | re.DOTALL)
_LEFT = re.compile(rf"^ *\[[^\]]+\]:\s*{_HERE}\S+|\b(?:src|srcset|href)=[\"']{_HERE}\S+", re.IGNORECASE | re.MULTILINE)
_NOTE = "\n---\n\nThe files that this page names are in the source distribution.\n"


class CannotMove(Exception):
    """A line of the service would be wrong below ``wicketgate/``; the text says where and why."""


class CannotShow(Exception):
    """README.md leads to a file in a way that the page for an index cannot do without; the text says where."""


class PageForAnIndex(MetadataHookInterface):
    PLUGIN_NAME = "custom"

    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": page_for_an_index(text)}


class ServiceBelowPackage(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory(prefix="wicketgate-build-")
        for path in move_service(Path(self.root), Path(self._folder.name)):
            build_data["force_include"][str(path)] = f"{PACKAGE}/{path.relative_to(self._folder.name).as_posix()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self._folder.cleanup()


def page_for_an_index(text: str) -> str:
    """Return the Markdown *text* with links to files as plain text and pictures as what they say. Raises CannotShow.

    What stands between fences is code, and stays.
    """
    parts = _FENCE.split(text)
    for at in range(0, len(parts), 3):  # text, a block of code, its fence, text, ...
        parts[at] = _without_files(parts[at])
        if at + 2 < len(parts):
            parts[at + 2] = ""
    return "".join(parts).rstrip() + "\n" + _NOTE


def _without_files(text: str) -> str:
    text = _PICTURE.sub("", text)
    text = _HTML_IMAGE.sub(lambda found: alt.group(2) if (alt := _ALT.search(found.group())) else "", text)
    text = _HTML_LINK.sub(lambda found: _named(found.group(2), found.group(1)), text)
    text = _IMAGE.sub(r"\1", text)
    text = _LINK.sub(lambda found: found.group() if found.group(1) else _named(found.group(2), found.group(3)), text)
    if left := _LEFT.search(text):
        raise CannotShow(f"README.md: {left.group().strip()!r} leads to a file, which an index does not have")
    return text


def _named(text: str, target: str) -> str:
    path = target.partition("#")[0]
    return text if path.startswith(text.strip("`/ ")) or not path else f"{text} ({path})"


def move_service(root: Path, target: Path) -> list[Path]:
    """Write the service below *root*, and the package's own module, to *target*, with their imports rewritten; returns
    the files. Raises CannotMove."""
    sources = sorted(
        path for name in SERVICE for path in (root / name).rglob("*") if path.is_file() and path.suffix != ".pyc"
    )
    modules = {_module(path.relative_to(root)) for path in sources if path.suffix == ".py"}
    written = []
    # The package names the service too, for create_app.
    package = root / PACKAGE / "__init__.py"
    for source in (package, *sources):
        place = target / (source.name if source == package else source.relative_to(root))
        place.parent.mkdir(parents=True, exist_ok=True)
        if source.suffix == ".py":
            text = source.read_text(encoding="utf-8")
            place.write_text(rewrite(text, modules, str(source.relative_to(root))), encoding="utf-8")
        else:
            shutil.copyfile(source, place)
        written.append(place)
    return written


def rewrite(text: str, modules: set[str], name: str) -> str:
    """Return the source *text* with its imports of the service below ``wicketgate``. Raises CannotMove.

    *modules* are the names of the service's modules, *name* is the file's, for the error.
    """
    tree = ast.parse(text, name)
    _refuse_names_in_texts(tree, modules, name)
    # Offsets of the syntax tree count bytes. Rewritten from the end, so that earlier offsets stay right.
    lines = text.encode().splitlines(keepends=True)
    for line, column in sorted(_places(tree, name), reverse=True):
        row = lines[line - 1]
        lines[line - 1] = row[:column] + _NAME.sub(rb"\g<1>" + f"{PACKAGE}.".encode(), row[column:], count=1)
    rewritten = b"".join(lines).decode()
    for node in ast.walk(ast.parse(rewritten, name)):
        if any(_of_service(imported) for imported in _imported(node)):
            raise CannotMove(f"{name}:{getattr(node, 'lineno', 0)}: this import cannot be rewritten")
    return rewritten


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _of_service(module: str) -> bool:
    return module.partition(".")[0] in SERVICE


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""] if node.level == 0 else []
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def _places(tree: ast.Module, name: str) -> Iterator[tuple[int, int]]:
    """Yield line and byte of each ``from app...`` and of each ``app...`` after ``import``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(map(_of_service, _imported(node))):
            yield node.lineno, node.col_offset
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _of_service(alias.name) and alias.asname is None:
                    raise CannotMove(f"{name}:{node.lineno}: 'import {alias.name}' binds a name that moves; use from")
                if _of_service(alias.name):
                    yield alias.lineno, alias.col_offset


def _refuse_names_in_texts(tree: ast.Module, modules: set[str], name: str) -> None:
    """Docstrings may name modules: they are read in the repository too, and nothing is looked up by them."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str) or id(node) in docstrings:
            continue
        # A name may go on behind its module, with a function of it: each beginning is looked up.
        named = [match.group() for match in _DOTTED.finditer(node.value)]
        found = [
            text
            for text in named
            if any(text == known or text.startswith(f"{known}.") for known in modules - {*SERVICE})
        ]
        if found or _AS_SCRIPT.search(node.value):
            raise CannotMove(
                f"{name}:{node.lineno}: the text {node.value!r} names a module of the service, which moves"
            )

"""Private names of dependencies: each one that is used still exists, and no other is used.

A release that renames one of them fails here, with its name, and not a hundred frames away. `pyproject.toml` bounds
these dependencies from above: raise a bound when this test has passed with the new release.
"""

import ast
import inspect
import json.encoder
import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import jsonschema
import pytest
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared import _stream_protocols
from sse_starlette.sse import AppStatus
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

ROOT = Path(__file__).resolve().parents[1]
PRODUCT = [path for top in ("wicketgate", "app", "routers", "middleware") for path in (ROOT / top).rglob("*.py")]

CYCLE = ("body", "message_event", "more_body", "response_complete", "chunked_encoding", "expected_content_length")


def sets(kind: type, *names: str) -> bool:
    """Returns true if the source of *kind* assigns all *names* to its instances."""
    source = inspect.getsource(kind)
    return all(re.search(rf"self\.{name}(: [^=]+)? = ", source) for name in names)


USED: dict[str, tuple[str, Callable[[], bool]]] = {
    "_connection": ("mcp", lambda: sets(ServerSession, "_connection")),
    "_stream_protocols": ("mcp", lambda: hasattr(_stream_protocols, "ReadStream")),
    "_unset_keepalive_if_required": ("uvicorn", lambda: hasattr(HttpToolsProtocol, "_unset_keepalive_if_required")),
    "_resolver": ("jsonschema", lambda: "_resolver" in inspect.signature(jsonschema.Draft202012Validator).parameters),
}
"""By name: the dependency, and whether it still has that name."""

UNDOCUMENTED: dict[str, tuple[str, Callable[[], bool]]] = {
    "Connection.exit_stack": ("mcp", lambda: "exit_stack" in inspect.getsource(Connection)),
    "HttpToolsProtocol._should_upgrade": ("uvicorn", lambda: hasattr(HttpToolsProtocol, "_should_upgrade")),
    "HttpToolsProtocol.cycle, .parser": ("uvicorn", lambda: sets(HttpToolsProtocol, "cycle", "parser")),
    "RequestResponseCycle": ("uvicorn", lambda: sets(RequestResponseCycle, *CYCLE)),
    "httpx._main": ("httpx", lambda: "from ._main import main\nexcept ImportError" in inspect.getsource(httpx)),
    "AppStatus": ("sse-starlette", lambda: hasattr(AppStatus, "enable_automatic_graceful_drain")),
    "encode_basestring_ascii": ("", lambda: json.encoder.encode_basestring_ascii("\u00fc") == '"\\u00fc"'),
}
"""Names without an underscore that no documentation promises, and overridden ones."""

PUBLIC = {"_replace", "__config__", "_exit"}
"""Names with an underscore that documentation does promise: of named tuples, of ``pydantic.create_model``, and of
``os``."""


def defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def foreign_names(tree: ast.AST, own: set[str], here: set[str]) -> Iterator[str]:
    """Private names in *tree* that belong to other packages: *own* are those of this program's classes, *here* what
    *tree* defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            of_self = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")
            if node.attr not in (own if of_self else here):
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from filter(private, [*str(node.module).split("."), *(alias.name for alias in node.names)])
        elif isinstance(node, ast.keyword) and private(str(node.arg)) and node.arg not in here:
            yield str(node.arg)


def test_no_other_private_name_of_a_dependency_is_used() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in PRODUCT]
    here = [set(defined(tree)) for tree in trees]
    own = set().union(*here)
    found = {name for tree, its in zip(trees, here, strict=True) for name in foreign_names(tree, own, its)}
    assert found - PUBLIC == set(USED)


def test_a_private_name_is_found_wherever_it_is_used() -> None:
    code = "from a._b import c\nx._d\ny(_e=1)\nclass F:\n    def f(self): return self._g, self._own\n"
    tree = ast.parse(code)
    assert set(foreign_names(tree, {"_own", "f", "F"}, set(defined(tree)))) == {"_b", "_d", "_e", "_g"}


@pytest.mark.parametrize("name", [*USED, *UNDOCUMENTED])
def test_a_private_name_that_is_used_still_exists(name: str) -> None:
    assert (USED | UNDOCUMENTED)[name][1](), f"{name} is gone"


def test_each_dependency_whose_private_names_are_used_is_bounded_from_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = {re.split(r"[<>=~ ]", each, maxsplit=1)[0]: each for each in project["dependencies"]}
    for dependency in {dependency for dependency, _ in (USED | UNDOCUMENTED).values() if dependency}:
        assert "<" in bounds[dependency], f"{dependency} has no upper bound"

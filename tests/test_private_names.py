"""Private names of dependencies: each one that is used still exists, and no other is used.

A release that renames one of them fails here, with its name, and not a hundred frames away. `pyproject.toml` bounds
these dependencies from above: raise a bound when this test has passed with the new release.
"""

import ast
import importlib
import inspect
import json.encoder
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import httpx
import jsonschema
import pytest
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.shared import _stream_protocols
from sse_starlette.sse import AppStatus

ROOT = Path(__file__).resolve().parents[1]
ROOTS = ("wicketgate", "app", "routers", "middleware")
PRODUCT = [path for top in ROOTS for path in (ROOT / top).rglob("*.py") if path.name != "__main__.py"]


def sets(kind: type, *names: str) -> bool:
    """Returns true if the source of *kind* assigns all *names* to its instances."""
    source = inspect.getsource(kind)
    return all(re.search(rf"self\.{name}(: [^=]+)? = ", source) for name in names)


USED: dict[str, tuple[str, Callable[[], bool]]] = {
    "_connection": ("mcp", lambda: sets(ServerSession, "_connection")),
    "_stream_protocols": ("mcp", lambda: hasattr(_stream_protocols, "ReadStream")),
    "_resolver": ("jsonschema", lambda: "_resolver" in inspect.signature(jsonschema.Draft202012Validator).parameters),
}
"""By name: the dependency, and whether it still has that name."""

UNDOCUMENTED: dict[str, tuple[str, Callable[[], bool]]] = {
    "Connection.exit_stack": ("mcp", lambda: "exit_stack" in inspect.getsource(Connection)),
    "httpx._main": ("httpx", lambda: "from ._main import main\nexcept ImportError" in inspect.getsource(httpx)),
    "AppStatus": ("sse-starlette", lambda: hasattr(AppStatus, "enable_automatic_graceful_drain")),
    "encode_basestring_ascii": ("", lambda: json.encoder.encode_basestring_ascii("\u00fc") == '"\\u00fc"'),
}
"""Names without an underscore that no documentation promises."""

OVERRIDDEN: dict[str, tuple[str, Callable[[], bool]]] = {}
"""Private names that classes of this program override."""

LISTED = USED | UNDOCUMENTED | OVERRIDDEN

PUBLIC = {"_replace", "__config__", "_exit", "_srcfile"}
"""Names with an underscore that documentation does promise: of named tuples, of ``pydantic.create_model``, of ``os``
and of ``logging``."""


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def defined(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_self(node):
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def private(name: str) -> bool:
    # A bare "_" is a value that nobody wants, or gettext.
    return name.startswith("_") and name != "_" and not (name.startswith("__") and name.endswith("__"))


def foreign_names(tree: ast.AST, own: set[str], here: set[str]) -> Iterator[str]:
    """Private names in *tree* that belong to other packages: *own* are those of this program's classes, *here* what
    *tree* defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and private(node.attr):
            if node.attr not in (own if of_self(node) else here):
                yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from filter(private, [*str(node.module).split("."), *(alias.name for alias in node.names)])
        elif isinstance(node, ast.keyword) and private(str(node.arg)) and node.arg not in here:
            yield str(node.arg)


@cache
def names_of(base: type) -> set[str]:
    """Returns the names of its members, and those that its methods use."""
    functions = filter(inspect.isfunction, vars(base).values())
    return set(vars(base)).union(*(each.__code__.co_names for each in functions))


def overridden_names(kind: type, body: ast.ClassDef) -> Iterator[str]:
    """Yields private names that *kind* defines or assigns to its instances although a base class of another package
    has them, as ``Base._name``."""
    bases = [base for base in kind.__mro__ if base.__module__.split(".")[0] not in (*ROOTS, "builtins", "typing")]
    names = set(filter(private, defined(body)))
    for base in bases:
        yield from (f"{base.__name__}.{name}" for name in names & names_of(base))


def product_classes() -> Iterator[tuple[type, ast.ClassDef]]:
    for path in PRODUCT:
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                yield getattr(module, node.name), node


def test_no_private_name_of_a_base_class_is_overridden_but_those_listed() -> None:
    assert {name for each in product_classes() for name in overridden_names(*each)} == set(OVERRIDDEN)


def test_no_other_private_name_of_a_dependency_is_used() -> None:
    trees = [ast.parse(path.read_text("utf-8")) for path in PRODUCT]
    here = [set(defined(tree)) for tree in trees]
    own = set().union(*here)
    found = {name for tree, its in zip(trees, here, strict=True) for name in foreign_names(tree, own, its)}
    assert found - PUBLIC == set(USED)


def test_a_private_name_is_found_wherever_it_is_used() -> None:
    code = "from a._b import c\nx._d\ny(_e=1)\nclass F:\n    def f(self): return self._g, self._own, super()._h\n"
    tree = ast.parse(f"{code}z._i = 1\n")
    assert set(foreign_names(tree, {"_own", "f", "F"}, set(defined(tree)))) == {"_b", "_d", "_e", "_g", "_h", "_i"}


@pytest.mark.parametrize("name", LISTED)
def test_a_private_name_that_is_used_still_exists(name: str) -> None:
    assert LISTED[name][1](), f"{name} is gone"


def test_each_dependency_whose_private_names_are_used_is_bounded_from_above() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = {re.split(r"[<>=~ \[]", each, maxsplit=1)[0]: each for each in project["dependencies"]}
    for dependency in {dependency for dependency, _ in LISTED.values() if dependency}:
        assert "<" in bounds[dependency], f"{dependency} has no upper bound"

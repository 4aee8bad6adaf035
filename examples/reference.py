"""Writes the reference of the library from its docstrings (``make openapi`` puts it into openapi/library.md)."""

import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator

from pydantic import BaseModel

import wicketgate

_HEAD = """# The library, by its names

Written from the docstrings by `make openapi`; [embedding](../docs/embedding.md) explains how the parts work together.
"""
_LITERAL = re.compile(r"``(.+?)``")


def main() -> None:
    print("\n".join(reference()))


def reference() -> Iterator[str]:
    """Yields the lines of the page: a section for each name of ``wicketgate.__all__``."""
    yield _HEAD
    for name in sorted(wicketgate.__all__, key=str.lower):
        found = getattr(wicketgate, name)
        yield f"## {name}\n"
        if inspect.isclass(found):
            yield from _class(name, found)
        elif callable(found):
            yield from _callable(name, found)
        else:
            yield f"`{name} = {found!r}`\n"


def _class(name: str, found: type) -> Iterator[str]:
    bases = [base.__name__ for base in found.__bases__ if base.__module__.startswith("wicketgate")]
    if issubclass(found, enum.Enum):
        yield f"An enumeration: {', '.join(f'`{member.name}`' for member in found)}.\n"
    elif issubclass(found, BaseException):
        yield f"An exception; derives from {', '.join(f'`{base}`' for base in bases) or '`Exception`'}.\n"
    elif issubclass(found, BaseModel):
        yield f"A pydantic model with the fields {', '.join(f'`{field}`' for field in found.model_fields)}.\n"
    else:
        yield f"{_signature(name, found)}\n"
    yield from _doc(found)
    if dataclasses.is_dataclass(found):
        yield f"Fields: {', '.join(f'`{field.name}`' for field in dataclasses.fields(found))}.\n"
    for own, member in vars(found).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if own.startswith("_") or not (inspect.isfunction(function) or isinstance(member, property)):
            continue
        if inspect.getdoc(member):
            heading = f"`{own}`" if isinstance(member, property) else _signature(own, getattr(found, own))
            yield f"### {name}.{own}\n\n{heading}\n"
            yield from _doc(member)


def _callable(name: str, found: object) -> Iterator[str]:
    yield f"{_signature(name, found)}\n"
    yield from _doc(found)


def _signature(name: str, found: object) -> str:
    assert callable(found)
    try:
        parameters = inspect.signature(found).parameters.values()
    except ValueError:
        return f"`{name}(...)`"
    # Types are left to the editor; here they would hide the names.
    shown: list[str] = []
    for each in parameters:
        mark = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        if each.kind is each.KEYWORD_ONLY and not any(word[:1] == "*" for word in shown):
            shown.append("*")
        if each.name != "self":
            shown.append(f"{mark}{each.name}" + ("" if each.default is each.empty else "=..."))
    prefix = "await " if inspect.iscoroutinefunction(found) else ""
    return f"`{prefix}{name}({', '.join(shown)})`"


def _doc(found: object) -> Iterator[str]:
    if text := inspect.getdoc(found):
        yield _LITERAL.sub(r"`\1`", text) + "\n"


if __name__ == "__main__":
    main()

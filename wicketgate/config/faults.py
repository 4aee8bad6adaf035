"""What is wrong with a value that people wrote, and where it stands: for every part of the configuration alike."""

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError


def faults(error: ValidationError, at: str = "") -> Iterator[str]:
    """``upstreams[0].port: must be a list``; *at* is where the checked part itself stands. Values are not repeated."""
    for fault in error.errors(include_url=False, include_input=False, include_context=False):
        where = _where(fault["loc"], at)
        yield f"{where}: {_what(fault)}" if where else _what(fault)


def _where(loc: tuple[int | str, ...], at: str) -> str:
    text = at
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _what(fault: Any) -> str:
    match fault["type"]:
        case "extra_forbidden":
            return "unknown key"
        case "tuple_type":
            return "must be a list"
        case "model_type" | "dict_type" | "model_attributes_type":
            return "must be a section with keys"
    message: str = fault["msg"]
    return message.removeprefix("Value error, ")

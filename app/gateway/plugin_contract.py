"""What a plugin may return, checked before it is believed: trusted plugins have faults too (gatekit G99 to G102)."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.gateway.plugins import Allow, Block, Complete, Continue, Request, Result


class ContractViolation(Exception):
    """A plugin returned what its kind may not. The text is for the log."""


def checked(kind: str, verdict: object, request: Request, result: Result | None) -> Allow | Block | Continue | Complete:
    """*verdict*, if this kind of plugin may give it on *request*, or on its *result*. Raises ContractViolation."""
    match kind, verdict:
        case "security", Allow() | Block():
            pass
        case "middleware", Continue():
            pass
        case "middleware", Complete() if result is None:
            pass
        case _:
            raise ContractViolation(f"{type(verdict).__name__} is no verdict of a {kind} plugin")
    assert isinstance(verdict, Allow | Block | Continue | Complete)
    told = verdict.reason if isinstance(verdict, Block) else verdict.note
    if not isinstance(told, str):
        raise ContractViolation("a reason or note must be a text")
    match verdict:
        case Complete(result=instead):
            _check_result(instead, request, None)
        case Allow(instead) | Continue(instead) if instead is not None:
            if result is None:
                _check_request(instead, request)
            else:
                _check_result(instead, request, result)
    return verdict


def checked_tools(tools: object) -> Sequence[Mapping[str, Any]]:
    """*tools*, if they are such a list. Raises ContractViolation."""
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise ContractViolation("on_tools must return a sequence of definitions")
    return tools


def _check_result(instead: object, request: Request, seen: Result | None) -> None:
    if not isinstance(instead, Mapping):
        raise ContractViolation("a result must be an object")
    # What a server left out a plugin need not add.
    if request.method == "tools/call" and not _has_content(instead) and (seen is None or _has_content(seen)):
        raise ContractViolation("the content of a result must be a list of content blocks")


def _has_content(result: Result) -> bool:
    content = result.get("content")
    return isinstance(content, list | tuple) and all(map(_is_block, content))


def _is_block(block: object) -> bool:
    return isinstance(block, Mapping) and isinstance(block.get("type"), str)


def _check_request(instead: object, request: Request) -> None:
    if not isinstance(instead, Request):
        raise ContractViolation("what takes the place of a request must be one")
    if (instead.id, instead.method, instead.identity) != (request.id, request.method, request.identity):
        raise ContractViolation("the id, method and identity of a request cannot be changed")
    if not (isinstance(instead.server, str) and isinstance(instead.name, str)):
        raise ContractViolation("the server and name of a request must be texts")
    if not instead.name:
        raise ContractViolation("the name of a request must not be empty")
    if not isinstance(instead.arguments, Mapping):
        raise ContractViolation("arguments must be an object")

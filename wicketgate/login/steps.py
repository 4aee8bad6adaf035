"""Logins without I/O: a decision is a generator that yields the next request, is sent its answer, and returns what came
of them. ``guarded.run`` carries the requests."""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar
from urllib.parse import urlencode

from wicketgate.login.failures import IssuerAway

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request. *body* and *headers* may hold secrets."""

    method: Literal["GET", "POST"]
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. *cut*: it was longer than is read."""

    status: int
    body: bytes = field(default=b"", repr=False)
    cut: bool = False

    def document(self) -> dict[str, Any] | None:
        """The JSON object that the answer is; None if it is none."""
        if self.cut:
            return None
        try:
            read = json.loads(self.body)
        except (ValueError, RecursionError):
            return None
        return read if isinstance(read, dict) else None


Steps = Generator[Request, Answer, T]
"""The requests of one decision. IssuerAway is thrown in where a request gets no answer."""


def get(url: str) -> Request:
    return Request("GET", url, {"Accept": "application/json"})


def post_form(url: str, form: Mapping[str, str], headers: Mapping[str, str]) -> Request:
    kinds = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
    return Request("POST", url, {**kinds, **headers}, urlencode(form).encode())


def post_json(url: str, document: Mapping[str, Any]) -> Request:
    kinds = {"Content-Type": "application/json", "Accept": "application/json"}
    return Request("POST", url, kinds, json.dumps(document).encode())


def check_there(answer: Answer, what: str) -> None:
    """Raises IssuerAway for an answer that says nothing of the request, but that the server is out of order."""
    if answer.status >= 500 or answer.status == 429:
        raise IssuerAway(f"{what} answered {answer.status}")

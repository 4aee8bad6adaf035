"""Logins without I/O: their requests, and the ways in which a login or a token fails.

A decision is a generator that yields the next request, is sent its answer, and returns the result. ``oauth_http`` sends
the requests. Each failure has a fixed text for callers.
"""

import json
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, TypeVar
from urllib.parse import urlencode

from wicketgate.results.bulk import read_object


class LoginFailure(Exception):
    """*why* is a fixed phrase for anybody. *detail* is for the operator: it may name hosts, and words of an issuer that
    were checked to be plain."""

    why: ClassVar[str] = "the login failed"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class IssuerAway(LoginFailure):
    """The issuer, or the server that names it, cannot be asked now. What is kept of a login stays good."""

    why = "its issuer cannot be reached"


class GrantInvalid(LoginFailure):
    """``invalid_grant``: the code or the refresh token is not good any more. Only a new login helps."""

    why = "the login has ended"


class ClientInvalid(LoginFailure):
    """``invalid_client``: the issuer does not know this client, or not any more. A new registration may help."""

    why = "its issuer does not know this gate"


class NeedsLogin(LoginFailure):
    """There is no login, or it has ended, and only a person can make another one."""

    why = "it needs a login by its operator"


class Declined(LoginFailure):
    """``access_denied``: the person, or the issuer, said no."""

    why = "the login was declined"


class NotOffered(LoginFailure):
    """The server, or its issuer, offers no login that this client can use."""

    why = "it offers no login that can be used"


class Distrusted(LoginFailure):
    """A document or an answer is not what it has to be: another issuer, no PKCE, a wrong state. Never tried again."""

    why = "its login cannot be trusted"


class IssuerUnnamed(Distrusted):
    """An issuer that a tool server names, and whose answers could be another's, without the word of the operator."""

    why = "its operator has to name its issuer first (oauth.issuer)"


class Refused(LoginFailure):
    """The issuer refused with *code*, an error of OAuth that is none of the above."""

    why = "its issuer refused the login"

    def __init__(self, detail: str, code: str) -> None:
        super().__init__(detail)
        self.code = code


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
        return None if self.cut else read_object(self.body)


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

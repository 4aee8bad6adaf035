"""The challenges with which a server refuses a request: 401 and 403 (RFC 9110 §11.6.1, RFC 6750 §3)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_MAX_CHARS = 16_384
_MAX_SCOPES = 50
_MAX_SCOPE = 200
_NAME = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PIECE = re.compile(
    rf"""({_NAME})[ \t]*=[ \t]*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))|({_NAME})(?=[ \t,]|$)|[^\s,]+""", re.DOTALL
)
"""A parameter, a scheme, or a word that is neither."""
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)
_HEADERS = ("www-authenticate", "x-amzn-remapped-www-authenticate")
"""The second is what a common gateway makes of the first."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A 401 or 403. *bearer* are the parameters of its first Bearer challenge, with names in lower case."""

    status: int
    bearer: Mapping[str, str] = field(default_factory=dict)

    @property
    def resource_metadata(self) -> str:
        """The URL at which the server says who gives tokens for it (RFC 9728 §5.1); empty if it does not say."""
        return self.bearer.get("resource_metadata", "")

    @property
    def scopes(self) -> tuple[str, ...] | None:
        """The scopes that the request needs; None if the server does not say."""
        scope = self.bearer.get("scope")
        return None if scope is None else tuple(dict.fromkeys(scope.split()))

    @property
    def named_scopes(self) -> frozenset[str]:
        """Those of ``scopes`` that can be kept and shown: the first fifty, each plain and short."""
        plain = (scope for scope in self.scopes or () if len(scope) <= _MAX_SCOPE and scope.isascii())
        return frozenset([scope for scope in plain if scope.isprintable()][:_MAX_SCOPES])

    @property
    def lacks_scopes(self) -> bool:
        """True if the token is good, and another one may do more."""
        return self.status == 403 and self.bearer.get("error") == "insufficient_scope"


def refusal_of(status: int, headers: Mapping[str, str]) -> Refusal | None:
    """The refusal that an answer is; None for any other. *headers* have names in lower case, and one value for all
    headers of a name, with commas between."""
    if status not in (401, 403):
        return None
    written = next((value for name in _HEADERS if (value := headers.get(name))), "")
    challenges = read_challenges(written)
    return Refusal(status, next((parameters for scheme, parameters in challenges if scheme == "bearer"), {}))


def read_challenges(value: str) -> list[tuple[str, dict[str, str]]]:
    """The challenges of one header, as scheme and parameters, both in lower case. Commas stand between challenges and
    between parameters, so a word without ``=`` begins a challenge. What cannot be read is left out."""
    found: list[tuple[str, dict[str, str]]] = []
    for name, quoted, bare, scheme in (piece.groups() for piece in _PIECE.finditer(value[:_MAX_CHARS])):
        if scheme:
            found.append((scheme.lower(), {}))
        elif name and found:
            # The first of a name counts, so that nothing behind it can take its place.
            found[-1][1].setdefault(name.lower(), _ESCAPED.sub(r"\1", quoted) if bare is None else bare)
    return found

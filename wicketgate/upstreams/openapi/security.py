"""Compares what a document asks for with what the operator configured (UP-95).

Documents are often stricter than their services, and a proxy on the way may add a credential. So this never keeps a
call back: it is told to the operator.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from wicketgate.upstreams.openapi.document import Document, Unusable

_MAX_ALTERNATIVES = 5
_MAX_NOTES = 10
_MAX_NAME = 80


@dataclass(frozen=True, slots=True)
class Configured:
    """What the gate sends with each call, which is no argument: *headers* (in lower case), the parameters *query*, and
    with *oauth* a token in ``Authorization``."""

    headers: frozenset[str] = frozenset()
    query: frozenset[str] = frozenset()
    oauth: bool = False


@dataclass(frozen=True, slots=True)
class _Scheme:
    """*text* is for the operator; *settings* are those that could supply it, none if the gate cannot send it."""

    text: str
    supplied: bool
    settings: tuple[str, ...]


class SecurityReader:
    """Reads what operations of *document* ask for."""

    def __init__(self, document: Document, configured: Configured) -> None:
        self._document = document
        self._configured = configured
        self._declared = document.security_schemes()

    def missing(self, operation: Mapping[str, Any]) -> str:
        """Returns the credentials that *operation* asks for and that are not configured, and where they are missing.
        Empty if nothing is: one of several alternatives is enough."""
        try:
            asked = self._document.follow(operation.get("security", self._document.root.get("security")))
        except Unusable:
            return ""
        alternatives = [each for each in asked if isinstance(each, Mapping)] if isinstance(asked, list) else []
        read = [[self._scheme(name) for name in alternative] for alternative in alternatives]
        if any(all(scheme.supplied for scheme in schemes) for schemes in read):
            return ""
        # What is there already need not be told. The shortest way is told first.
        wanted = [[scheme for scheme in schemes if not scheme.supplied] for schemes in read]
        texts = dict.fromkeys(" and ".join(scheme.text for scheme in schemes) for schemes in wanted)
        if not texts:
            return ""
        settings = sorted({setting for schemes in wanted for scheme in schemes for setting in scheme.settings})
        where = f"none in {' or '.join(settings)}" if settings else "the gate cannot send it"
        return f"{' or '.join(list(texts)[:_MAX_ALTERNATIVES])}; {where}"

    def _scheme(self, name: str) -> _Scheme:
        declared, configured = self._declared.get(name, {}), self._configured
        shown = _short(declared.get("name"))
        match declared.get("type"), declared.get("in"):
            case "apiKey", "header" if shown:
                return _Scheme(f"header {shown} (apiKey)", shown.lower() in configured.headers, ("headers",))
            case "apiKey", "cookie" if shown:
                return _Scheme(f"cookie {shown} (apiKey)", "cookie" in configured.headers, ("headers.Cookie",))
            case "apiKey", "query" if shown:
                return _Scheme(f"{shown} in the query (apiKey)", declared["name"] in configured.query, ("query",))
            case "http", _:
                kind = _short(declared.get("scheme")).lower()
                given = "authorization" in configured.headers or (configured.oauth and kind == "bearer")
                settings = ("headers", "oauth") if kind == "bearer" else ("headers",)
                return _Scheme(f"header Authorization (http {kind})", given, settings)
            case ("oauth2" | "openIdConnect") as kind, _:
                given = "authorization" in configured.headers or configured.oauth
                return _Scheme(f"header Authorization ({kind})", given, ("headers", "oauth"))
            case "mutualTLS", _:
                return _Scheme("a certificate of the client (mutualTLS)", False, ())
        return _Scheme(f"{_short(name)}, which it does not declare", False, ())


def security_notes(missing: Iterable[str]) -> tuple[str, ...]:
    """Returns a line for each text of *missing*, which has one for each operation, empty ones among them."""
    counts = Counter(text for text in missing if text)
    notes = [
        f"{count:,} operation{'s ask' if count > 1 else ' asks'} for {text}" for text, count in counts.most_common()
    ]
    more = len(notes) - _MAX_NOTES
    return (*notes[:_MAX_NOTES], f"{more} more kinds of credentials are asked for") if more > 0 else tuple(notes)


def _short(text: object) -> str:
    return text[:_MAX_NAME] if isinstance(text, str) else ""

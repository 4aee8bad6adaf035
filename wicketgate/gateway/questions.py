"""Questions of a server to the person behind a call, as they may be put (ROUTE-33 to ROUTE-35).

Each begins with the name of its server, in our words. A server cannot write our own question for an approval, hide
characters in its own, ask for credentials in a form, or link to a page of the gate or to one whose host is not shown.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from wicketgate.catalog.card import one_line
from wicketgate.net.guard import is_loopback
from wicketgate.results.bulk import outweighs

CANCELLED: Mapping[str, Any] = {"action": "cancel"}
"""The answer to a question that was put to nobody."""

_MAX_CHARS = 4_000
_MAX_LINES = 40
_MAX_HOST = 253
_MAX_VALUES = 10_000
_MAX_UNITS = 5_000
"""Of one value or sixteen characters: each character is looked at, on the event loop."""
_MAX_PAGES = 10
# In values of these a program compares characters, so they are not folded: with hidden ones the question is refused.
_EXACT = frozenset({"enum", "const", "default", "pattern"})
_FIELDS: Mapping[str, tuple[str, ...]] = {"form": ("requestedSchema",), "url": ("url", "elicitationId")}
_PLAIN_HOST = re.compile(r"[a-z0-9_-]+(?:\.[a-z0-9_-]+)*\.?|[0-9a-f]*:[0-9a-f:.]+")
# Small letters of the Cyrillic and Greek alphabets that cannot be told from Latin ones.
_LOOK_ALIKE = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0455\u0458\u04bb\u051b\u051d\u0501\u043c\u043d\u043a\u0442\u0432"
    "\u03b1\u03bf\u03b9\u03bd\u03c1\u03c5\u03ba\u03b5\u03c4\u03b2\u03b7\u03bc\u0131",
    "aeopcyxisjhqwdmhktbaoivpuketbnmi",
)
_INTRO = re.compile(r"`[^`]{1,80}` asks\b")
_OUR_NAME = re.compile(r"wicketgate(?:asks|needs|wants|re(?:quest|quire)s)")
_NO_LETTERS = re.compile(r"[^a-z]+")
_DIGITS_AS_LETTERS = str.maketrans("013457@$", "oieastas")
_CREDENTIAL = (
    r"(?:\bwg_|passw(?:or)?d|pass(?:phrase|code)|secret(?!ar)|credential|one[\W_]*time[\W_]*code|\b(?:otp|cvv|cvc)\b"
    r"|(?:api|access|private|signing|ssh)[\W_]*key|(?:access|api|auth|bearer|refresh|session)[\W_]*token)"
)
_ASKS_FOR_ONE = re.compile(rf"\bwg_|\b(?:enter|type|paste|provide|give|send|tell)\b[^.?!]{{0,60}}{_CREDENTIAL}")
_APPROVAL = re.compile(r"\bmay\b.{1,400}?\bbe (?:run|executed|called) with\b", re.DOTALL)


class QuestionRefused(Exception):
    """A question that is not put to anybody. The argument is a fixed phrase for the log that completes "it ..."."""


@dataclass(frozen=True, slots=True)
class PageRules:
    """The pages that a server may not send a person to: those of *ours* (``place_of``), and loopback ones unless
    *loopback*, since those are for servers on this machine."""

    ours: Collection[str] = ()
    loopback: bool = True


ANY_PAGE = PageRules()


def place_of(url: str) -> str:
    """Returns host and port of a URL; all names of loopback are one. Raises ValueError."""
    parts = urlsplit(url)
    host = (parts.hostname or "").removesuffix(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return f"{'localhost' if is_loopback(host) else host}:{port}"


def question_of(server: str, params: object, rules: PageRules = ANY_PAGE) -> dict[str, Any]:
    """Returns the ``params`` of ``elicitation/create`` as they may be put. Raises QuestionRefused."""
    if not isinstance(params, Mapping) or not isinstance(message := params.get("message"), str):
        raise QuestionRefused("is not well-formed")
    if outweighs([value for key, value in params.items() if key != "message"], _MAX_UNITS):
        raise QuestionRefused("is too large")
    # A client may show whatever else it finds, so a question has what belongs to its mode and nothing more.
    match mode := params.get("mode", "form"):
        case "form" | "url":
            shown = {key: params[key] for key in ("mode", *_FIELDS[mode]) if key in params}
        case _:
            raise QuestionRefused("has a mode that is not known")
    if mode == "form":
        intro = f"`{server}` asks: "
        if "requestedSchema" in shown:
            shown["requestedSchema"] = _folded(shown["requestedSchema"])
    else:
        intro = f"`{server}` asks you to open a page at {_host(params.get('url'), rules)}: "
        if "elicitationId" in shown and (not isinstance(own := shown["elicitationId"], str) or _hides(own)):
            raise QuestionRefused("has an id that is not plain text")
    # Anyone who reads it must see who asks.
    for text in map(_as_people_read, _texts({**shown, "message": message})):
        if _APPROVAL.search(text):
            raise QuestionRefused("looks like the gate's own question for an approval")
        if _INTRO.search(text):
            raise QuestionRefused("speaks in the name of another server")
        if _OUR_NAME.search(_NO_LETTERS.sub("", text.translate(_DIGITS_AS_LETTERS))):
            raise QuestionRefused("speaks in the name of the gate")
    if mode == "form" and (_ASKS_FOR_ONE.search(_as_people_read(message[:_MAX_CHARS])) or _has_secret_field(shown)):
        raise QuestionRefused("asks for a credential in a form")
    shown["message"] = intro + _lines(message)
    return shown


def pages_of(server: str, data: object, rules: PageRules = ANY_PAGE) -> tuple[object, Sequence[str]]:
    """The data of an error that asks for pages to be opened (``{"elicitations": [...]}``): the pages as they may be put
    and nothing else; and the phrases of those that may not (FACE-86). Other data as they came."""
    pages = data.get("elicitations") if isinstance(data, Mapping) else None
    if not isinstance(pages, list):
        return data, ()
    shown: list[Mapping[str, Any]] = []
    refused: list[str] = ["is one too many"] if len(pages) > _MAX_PAGES else []
    for page in pages[:_MAX_PAGES]:
        try:
            if not isinstance(page, Mapping) or page.get("mode") != "url":
                raise QuestionRefused("is no page")
            shown.append(question_of(server, page, rules))
        except QuestionRefused as why:
            refused.append(str(why))
    return {"elicitations": shown}, refused


def _lines(text: str) -> str:
    """*text* without hidden characters; its lines stay, blank ones one at a time, and their number is bounded."""
    lines: list[str] = []
    for line in text[:_MAX_CHARS].splitlines():
        line = one_line(line)
        if line or (lines and lines[-1]):
            lines.append(line)
    return "\n".join(lines[:_MAX_LINES]).strip() + ("…" if len(text) > _MAX_CHARS or len(lines) > _MAX_LINES else "")


def _has_secret_field(form: Mapping[str, Any]) -> bool:
    """True if a field takes text and its name or words ask for a credential. A yes or no, or a choice, gives none."""
    schema = form.get("requestedSchema")
    fields = schema.get("properties") if isinstance(schema, Mapping) else None
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        if not isinstance(field, Mapping) or field.get("type") == "boolean" or "enum" in field or "oneOf" in field:
            continue
        words = _as_people_read(f"{name} {field.get('title')} {field.get('description')}")
        if field.get("format") == "password" or re.search(_CREDENTIAL, words):
            return True
    return False


def _host(url: object, rules: PageRules) -> str:
    """The host of a link that may be opened: over TLS, or on this machine. Raises QuestionRefused."""
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url or "\\" in url:
        raise QuestionRefused("has a link that is not a plain URL")
    try:
        parts = urlsplit(url)
        host, port, user = parts.hostname or "", parts.port, parts.username
    except ValueError:
        raise QuestionRefused("has a link that is not a plain URL") from None
    if not host or len(host) > _MAX_HOST or not _PLAIN_HOST.fullmatch(host) or user is not None or "@" in parts.netloc:
        raise QuestionRefused("has a link without a plain host")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(host.removesuffix("."))):
        raise QuestionRefused("has a link that is not https")
    if place_of(url) in rules.ours:
        raise QuestionRefused("has a link to a page of the gate")
    if is_loopback(host.removesuffix(".")) and not rules.loopback:
        raise QuestionRefused("has a link to this machine, and its server is not here")
    shown = f"[{host}]" if ":" in host else host
    return shown if port is None else f"{shown}:{port}"


def _folded(schema: Any) -> Any:
    """A copy of *schema* whose words hold no hidden characters. Raises QuestionRefused where a name or a value does, or
    where there is too much of it."""
    root: list[Any] = [schema]
    waiting: list[tuple[Any, Any, bool]] = [(root, 0, False)]
    for _ in range(_MAX_VALUES):
        if not waiting:
            return root[0]
        holder, place, exact = waiting.pop()
        each = holder[place]
        if isinstance(each, str):
            folded = one_line(each)
            if exact and folded != each and _hides(each):
                raise QuestionRefused("hides characters in a value")
            holder[place] = each if exact else folded
        elif isinstance(each, Mapping):
            if any(_hides(key) for key in each if isinstance(key, str)):
                raise QuestionRefused("hides characters in a name")
            holder[place] = copy = dict(each)
            waiting += [(copy, key, exact or key in _EXACT) for key in copy]
        elif isinstance(each, list | tuple):
            holder[place] = items = list(each)
            waiting += [(items, index, exact) for index in range(len(items))]
    raise QuestionRefused("is too large")


def _hides(text: str) -> bool:
    return any(unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") for char in text)


def _as_people_read(text: str) -> str:
    """*text* on one line in small Latin letters, as far as its characters look like these."""
    plain = unicodedata.normalize("NFKD", one_line(text)).casefold().translate(_LOOK_ALIKE)
    return "".join(char for char in plain if unicodedata.category(char) != "Mn")


def _texts(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each[: 4 * _MAX_CHARS]
        elif isinstance(each, Mapping):
            waiting += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple):
            waiting += each

"""Finds what looks like a secret in the words of a client's entry (OPS-4).

A wrong guess costs the user one variable. A secret that is missed gets into a file that is often shared.
"""

import re
from collections.abc import Iterator
from urllib.parse import unquote

from wicketgate.config.settings import SECRET_NAME
from wicketgate.log_text import Redactor

_LONG = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+=-]{24,512}")
_ADDRESS = re.compile(r"(?:[A-Za-z]:)?[~./\\]|https?://")
_PLAIN = re.compile(r"\d{1,7}|true|false|yes|no|on|off|none|null", re.IGNORECASE)

# user:password@, and a long user alone, as in the address of an error tracker.
_IN_URL = re.compile(r"(?<=://)(?:[^\s/:@]*:([^\s/@]+)|([^\s/:@]{16,}))@")
_IN_QUERY = re.compile(r"[?&#]([^=&?#\s]{1,256})=([^&#\s]+)")
_FRAGMENT = re.compile(r"(?<=#)[^#\s]+")
# Not of git+https://, where a long part is a commit.
_URL_PATH = re.compile(r"(?<!git\+https)(?<!git\+http)(?<!git\+ssh)://[^/\s?#\"']*(/[^?#\s\"']+)")
_SEGMENT = re.compile(r"[^/]+")
_NO_TOKEN = re.compile(r"[^A-Za-z0-9_+=-]+")
# "key": "value", in a text within JSON too, and key=value of a connection string.
_IN_JSON = re.compile(r"""["']([^"'\\]{1,256})\\{0,8}["']\s{0,64}:\s{0,64}\\{0,8}["']([^"']+?)(?=\\{0,8}["'])""")
_IN_PAIRS = re.compile(r"(?:^|[;,\s])-{0,2}([A-Za-z][\w.-]{0,63})=([^;\s\"']+)")

_USER_FLAGS = frozenset({"-u", "-U", "--user", "--userpwd", "--proxy-user", "--login"})
_USER = re.compile(r"([^\s:/@]{1,256}):(\S.*)", re.DOTALL)
_GLUED = re.compile(r"(-[kp])([^\s=]+=*)")
_SHORT = re.compile(r"(?=.{0,512}[0-9])(?=.{0,512}[A-Za-z])\S{6,}|(?=.{0,512}[a-z])(?=.{0,512}[A-Z])\S{8,}")
_PORTS = re.compile(r"[\d.:/-]+(?:tcp|udp|sctp)?")

_redact = Redactor()

Span = tuple[int, int, str]
"""Start, end, and a name for what stands between."""


def is_masked(text: str) -> bool:
    """True if part of the text has the shape of a well-known kind of secret."""
    return _redact(text) != text


def looks_secret(name: str, value: str) -> bool:
    """Judges by shape and name. Numbers, switches, paths and addresses are no secrets."""
    if is_masked(value):
        return True
    if not value or _PLAIN.fullmatch(value) or _ADDRESS.match(value):
        return False
    return bool(SECRET_NAME.search(name) or _LONG.fullmatch(value))


def secrets_in(text: str) -> list[Span]:
    """Returns the secrets that are parts of *text*, in its order: in URLs the password, what is named like a secret in
    query or fragment, and long tokens in the path; in JSON and ``key=value`` what is named like a secret."""
    done: list[Span] = []
    for span in sorted(_all_in(text)):
        if not done or span[0] >= done[-1][1]:
            done.append(span)
    return done


def is_masked_beside(text: str) -> bool:
    """True if a well-known kind of secret is in *text* beside ``secrets_in``."""
    for start, end, _ in reversed(secrets_in(text)):
        text = text[:start] + text[end:]
    return is_masked(text)


def _all_in(text: str) -> Iterator[Span]:
    for pattern in (_IN_JSON, _IN_PAIRS):
        yield from ((*match.span(2), match[1]) for match in pattern.finditer(text) if looks_secret(match[1], match[2]))
    if "://" not in text:
        return
    yield from ((*match.span(match.lastindex or 0), "password") for match in _IN_URL.finditer(text))
    yield from ((*match.span(2), match[1]) for match in _IN_QUERY.finditer(text) if looks_secret(match[1], match[2]))
    yield from ((*match.span(), "fragment") for match in _FRAGMENT.finditer(text) if looks_secret("", match[0]))
    for path in _URL_PATH.finditer(text):
        for segment in _SEGMENT.finditer(text, *path.span(1)):
            if is_masked(segment[0]) or any(looks_secret("", part) for part in _NO_TOKEN.split(unquote(segment[0]))):
                yield (*segment.span(), "path")


def password_of(flag: str, value: str) -> str:
    """Returns the password of ``--user name:password``, empty if there is none. ``1000:1000`` is a user and a group."""
    found = _USER.fullmatch(value) if flag in _USER_FLAGS else None
    if found is None or found[1].isdigit() or found[1] == found[2] or _PLAIN.fullmatch(found[2]):
        return ""
    return found[2]


def is_short_secret(flag: str, value: str) -> bool:
    """True for the value of ``-k`` or ``-p`` that is no port, package or path."""
    if flag not in {"-k", "-p"} or _PORTS.fullmatch(value) or _ADDRESS.match(value) or value.startswith("@"):
        return False
    return _SHORT.fullmatch(value) is not None


def glued(word: str) -> tuple[str, str]:
    """Returns ``("-p", "secret")`` for ``-psecret``, otherwise two empty texts."""
    found = _GLUED.fullmatch(word)
    return (found[1], found[2]) if found and is_short_secret(found[1], found[2]) else ("", "")

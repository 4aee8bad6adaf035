"""Secrets and references of other clients' files as variables of ours: ``${NAME}`` (W-IMPORT).

A value that looks like a secret never gets into the configuration that is written; its variable does.
"""

import re
from collections.abc import Iterable, Mapping

from wicketgate.config.settings import SECRET_NAME
from wicketgate.log_text import Redactor

# ${{ secrets.X }}, ${env:X} and ${input:X}, ${X} and ${X:-default}, anything else in ${}, {env:X}, $X
_REFERENCE = re.compile(
    r"\$\{\{\s*\w+\.(?P<dotted>\w+)\s*\}\}"
    r"|\$\{(?P<kind>env|input):(?P<named>[^}]+)\}"
    r"|\$\{(?P<plain>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{(?P<other>[^}]*)\}"
    r"|\{env:(?P<braced>\w+)\}"
    r"|(?<!\w)\$(?P<bare>[A-Z_][A-Z0-9_]*)\b"
)
_SPECIAL = {"userHome": "HOME", "workspaceFolder": "WORKSPACE_FOLDER", "workspaceRoot": "WORKSPACE_FOLDER"}
_SEPARATORS = frozenset({"pathSeparator", "/"})

_LONG = re.compile(r"(?=[^0-9]*[0-9])(?=[^A-Za-z]*[A-Za-z])[A-Za-z0-9_+=-]{24,512}")
_PLACE = re.compile(r"(?:[A-Za-z]:)?[~./\\]|https?://")
_PLAIN = re.compile(r"\d{1,7}|true|false|yes|no|on|off|none|null", re.IGNORECASE)
_SCHEME = re.compile(r"((?:bearer|basic|token|apikey)\s+)(\S+)", re.IGNORECASE)
# user:password@, and a long user alone, as in the address of an error tracker.
_IN_URL = re.compile(r"(?<=://)(?:[^\s/:@]*:([^\s/@]+)|([^\s/:@]{16,}))@")
_IN_QUERY = re.compile(r"[?&]([^=&#\s]+)=([^&#\s]+)")

_masked = Redactor()


class Variables:
    """The variables that the written configuration needs. *texts*: all of the file, whose own references keep their
    names. *inputs* says in the client's words what it asks its user for."""

    def __init__(self, texts: Iterable[str], inputs: Mapping[str, str]) -> None:
        self.told: dict[str, str] = {}
        """By name, what it stands for: never its value."""
        self._values: dict[str, str | None] = {}
        self._secrets: dict[tuple[str, str], str] = {}
        self._inputs = inputs
        for text in texts:
            for match in _REFERENCE.finditer(text):
                self._values.setdefault(_name(match), None)

    def translate(self, text: str, notes: list[str], *, default: bool = False) -> str:
        """References of other clients as ours; what has no like here goes to *notes*. With *default*, a variable that
        is not set is empty instead of an error."""

        def ours(match: re.Match[str]) -> str:
            if _SEPARATORS & {match["plain"], match["other"]}:
                return "/"
            name, given = _name(match), match["default"]
            if given is not None and looks_secret(name, given):
                notes.append(f"the default of {name} looks like a secret and was left out")
                given = None
            if match["other"] is not None:
                notes.append(f"{match.group()!r} became the variable {name}")
            if given is None:
                self.told.setdefault(name, self._inputs.get(match["named"] or "", ""))
                given = "" if default else None
            return f"${{{name}}}" if given is None else f"${{{name}:-{given}}}"

        return _REFERENCE.sub(ours, text)

    def secret(self, value: str, wanted: str, server: str, told: str, *, default: bool = False) -> str:
        """``${NAME}`` for *value*: the same variable for the same value, never one variable for two values."""
        name, number = _legal(wanted), 1
        candidate = self._secrets.get((name, value), name)
        while candidate in self._values and self._values[candidate] != value:
            candidate = f"{_legal(server)}_{name}" + (f"_{number}" if number > 1 else "")
            number += 1
        self._values[candidate] = value
        self._secrets[name, value] = candidate
        self.told.setdefault(candidate, told)
        return f"${{{candidate}{':-' if default else ''}}}"


def has_reference(text: str) -> bool:
    return _REFERENCE.search(text) is not None


def is_known_secret(value: str) -> bool:
    """A credential by its well-known shape."""
    return _masked(value) != value


def looks_secret(name: str, value: str) -> bool:
    """By its shape or by what it is called; numbers, switches, paths and addresses are none."""
    if is_known_secret(value):
        return True
    if not value or _PLAIN.fullmatch(value) or _PLACE.match(value):
        return False
    return bool(SECRET_NAME.search(name) or _LONG.fullmatch(value))


def split_scheme(value: str) -> tuple[str, str]:
    """``Bearer `` and the rest; nothing and the whole where there is no scheme."""
    found = _SCHEME.fullmatch(value)
    return (found.group(1), found.group(2)) if found else ("", value)


def split_url(url: str) -> list[tuple[str, str]]:
    """The parts of *url* in order, each with the name of the secret that it is, or with an empty one."""
    spans = [(*match.span(match.lastindex or 0), "password") for match in _IN_URL.finditer(url)]
    for match in _IN_QUERY.finditer(url):
        if looks_secret(match.group(1), match.group(2)):
            spans.append((match.start(2), match.end(2), match.group(1)))
    parts: list[tuple[str, str]] = []
    at = 0
    for start, end, name in sorted(spans):
        if start >= at:
            parts += [(url[at:start], ""), (url[start:end], name)]
            at = end
    return [*parts, (url[at:], "")]


def _name(match: re.Match[str]) -> str:
    groups = ("dotted", "named", "plain", "other", "braced", "bare")
    found = next(match[group] for group in groups if match[group] is not None)
    if found in _SPECIAL:
        return _SPECIAL[found]
    kept = match["kind"] != "input" and re.fullmatch(r"[A-Za-z_]\w*", found, re.ASCII)
    return found if kept else _legal(found)


def _legal(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "VALUE"
    return f"_{name}" if name[0].isdigit() else name

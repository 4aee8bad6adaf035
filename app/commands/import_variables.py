"""The values of a client's entry, with variables in place of secrets and of other clients' references (OPS-4).

A wrong guess costs the user one variable. A secret that is missed gets into a file that is often shared.
"""

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
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


# ${{ secrets.X }}, ${env:X} and ${input:X}, ${X} and ${X:-default}, anything else in ${}, {env:X}, $X
_REFERENCE = re.compile(
    r"\$\{\{\s*\w+\.(?P<dotted>\w+)\s*\}\}"
    r"|\$\{(?P<kind>env|input):(?P<named>[^}]+)\}"
    r"|\$\{(?P<plain>[A-Za-z_]\w*)(?::-(?P<default>[^}]*))?\}"
    r"|\$\{(?P<other>[^}]*)\}"
    r"|\{env:(?P<braced>\w+)\}"
    r"|(?<!\w)\$(?P<bare>[A-Z_][A-Z0-9_]*)\b"
)
_NAMES = ("dotted", "named", "plain", "other", "braced", "bare")
_SPECIAL = {"userHome": "HOME", "workspaceFolder": "WORKSPACE_FOLDER", "workspaceRoot": "WORKSPACE_FOLDER"}
_SEPARATORS = frozenset({"pathSeparator", "/"})


class Variables:
    """The variables that the written configuration needs.

    References in *texts*, the whole file, keep their names.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        # By name the description of the value, never the value.
        self.descriptions: dict[str, str] = {}
        self._inputs: dict[str, str] = {}
        self._secrets: dict[tuple[str, str], str] = {}
        self._values: dict[str, str | None] = {
            _reference_name(match): None for text in texts for match in _REFERENCE.finditer(text)
        }
        # By server and name the next number to try, so that a thousand values do not each begin at the first.
        self._next: dict[tuple[str, str], int] = {}

    def translate(self, text: str, notes: list[str], inputs: Mapping[str, str], *, optional: bool) -> str:
        """Spell other clients' references as ours. Those that have no equivalent get a note.

        *inputs* describes, in the client's words, the values that the client asks its user for. With *optional* a
        variable that is not set is empty instead of an error.
        """

        def spell(match: re.Match[str]) -> str:
            if _SEPARATORS & {match["plain"], match["other"]}:
                return "/"
            name, default = _reference_name(match), match["default"]
            if default is not None and (looks_secret(name, default) or secrets_in(default)):
                notes.append(f"the default of {name} looks like a secret and was omitted")
                default = None
            if match["other"] is not None:
                notes.append(f"{match.group()!r} became the variable {name}")
            description = inputs.get(match["named"] or "", "")
            if match["kind"] == "input":
                name = self._asked(name, description)
            return self.needed(name, description, default, optional=optional)

        return _spelled(text, spell)

    def _asked(self, name: str, description: str) -> str:
        """Returns the variable of an input: two of one id stay two if their descriptions differ."""
        own = name
        for number in itertools.count(2):
            if self._inputs.setdefault(own, description) == description:
                break
            own = f"{name}_{number}"
        return own

    def needed(self, name: str, description: str, default: str | None = None, *, optional: bool) -> str:
        """Returns ``${name}``, and lists the variable if there is no *default*."""
        if default is None:
            self.descriptions.setdefault(name, description)
            default = "" if optional else None
        return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"

    def secret(self, value: str, wanted: str, server: str, description: str, *, optional: bool) -> str:
        """``${NAME}`` for *value*: the same variable for the same value, never one variable for two values."""
        name, at = variable_name(wanted), (server, variable_name(wanted))
        candidate = self._secrets.get((name, value), name)
        while candidate in self._values and self._values[candidate] != value:
            number = self._next[at] = self._next.get(at, 0) + 1
            candidate = f"{variable_name(server)}_{name}" + (f"_{number}" if number > 1 else "")
        self._values[candidate] = value
        self._secrets[name, value] = candidate
        self.descriptions.setdefault(candidate, description)
        return f"${{{candidate}{':-' if optional else ''}}}"


class Verbatim(Variables):
    """Leaves secrets where they are. Two entries that are equal then are one server; nothing of it is written."""

    def __init__(self) -> None:
        super().__init__(())

    def secret(self, value: str, wanted: str, server: str, description: str, *, optional: bool) -> str:
        return value

    def needed(self, name: str, description: str, default: str | None = None, *, optional: bool) -> str:
        return f"${{{name}}}" if default is None else f"${{{name}:-{default}}}"


def has_reference(text: str) -> bool:
    end = text.rfind("}") + 1
    return any(_REFERENCE.search(part) for part in (text[:end], *text[end:].split("${")))


def references_in(text: str) -> list[tuple[int, int]]:
    """Returns start and end of each reference in *text*."""
    return [match.span() for match in _REFERENCE.finditer(text, 0, text.rfind("}") + 1)]


def between_references(text: str) -> Iterator[tuple[str, bool]]:
    """Yields the parts of *text* in order: those between references with True, the references with False."""
    end, at = text.rfind("}") + 1, 0
    for match in _REFERENCE.finditer(text[:end]):
        yield text[at : match.start()], True
        yield match.group(), False
        at = match.end()
    yield text[at:], True


def variable_name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9]+", "_", text).strip("_").upper() or "VALUE"
    return f"_{name}" if name[0].isdigit() else name


def _spelled(text: str, spell: Callable[[re.Match[str]], str]) -> str:
    # Behind the last brace nothing that opens can close. Looking for its end from each opening would be quadratic.
    end = text.rfind("}") + 1
    return _REFERENCE.sub(spell, text[:end]) + "${".join(_REFERENCE.sub(spell, part) for part in text[end:].split("${"))


def _reference_name(match: re.Match[str]) -> str:
    found = next(match[group] for group in _NAMES if match[group] is not None)
    if found in _SPECIAL:
        return _SPECIAL[found]
    kept = match["kind"] != "input" and re.fullmatch(r"[A-Za-z_]\w*", found, re.ASCII)
    return found if kept else variable_name(found)


_HEADER_FLAGS = frozenset({"--header", "-H"})
_ENV_FLAGS = frozenset({"-e", "--env"})
_SCHEME = re.compile(r"((?:bearer|basic|token|apikey)\s+)(\S+)", re.IGNORECASE)


@dataclass(eq=False, repr=False)
class Values:
    """Writes the values of the server *name*. With *optional*, a variable that is not set is empty.

    What has no equivalent gets one of *notes*.
    """

    _name: str
    _variables: Variables
    _notes: list[str]
    _inputs: Mapping[str, str]
    optional: bool

    def words(self, words: list[str]) -> list[str]:
        """The words of a command without secrets: those after ``--token``, in ``--token=``, ``-e TOKEN=``,
        ``--header "Name: ..."``, ``--user name:password``, ``-k secret`` and ``-psecret``, in JSON, and those with a
        well-known shape."""
        done: list[str] = []
        for before, word in zip(["", *words], words, strict=False):
            flag, equals, value = word.partition("=")
            short, secret = glued(word)
            if short:
                done.append(short + self._secret(secret, f"{self._name}_{short}", f"argument {short}"))
            elif before in _HEADER_FLAGS and ":" in word:
                header, _, content = word.partition(":")
                space = " " if content.startswith(" ") else ""
                done.append(f"{header}:{space}{self.header(header, content.strip())}")
            elif equals and before in _ENV_FLAGS:
                done.append(f"{flag}={self.value(flag, value, flag, f'argument {flag}')}")
            elif equals and flag.startswith("-"):
                done.append(f"{flag}={self._argument(flag, value)}")
            elif before.startswith("-") and "=" not in before and not glued(before)[0] and not word.startswith("-"):
                done.append(self._argument(before, word))
            else:
                done.append(self._argument("", word))
        return done

    def header(self, name: str, value: str) -> str:
        found = _SCHEME.fullmatch(value)
        scheme, rest = found.groups() if found else ("", value)
        return scheme + self.value("token" if scheme else name, rest, f"{self._name}_{name}", f"header {name}")

    def _argument(self, flag: str, value: str) -> str:
        """A long argument is more often a package or an id than a secret. Without a flag that names a secret, only a
        well-known shape counts."""
        wanted, description = f"{self._name}_{flag or 'argument'}", f"argument {flag}".strip()
        if password := password_of(flag, value):
            if has_reference(password):
                return self.translate(value)
            name = value.removesuffix(password)
            return name + self._secret(password, f"{self._name}_password", f"password in {description}")
        if is_short_secret(flag, value) and not has_reference(value):
            return self._secret(value, wanted, description)
        plain = not has_reference(value) and "://" not in value and not is_masked_beside(value)
        if plain and not (looks_secret(flag, "x") and looks_secret(flag, value)):
            return self._without_parts(value, description)
        return self.value(flag, value, wanted, description)

    def value(self, name: str, value: str, wanted: str, description: str) -> str:
        """*value* with a variable in place of the secret in it."""
        if has_reference(value) or "://" in value:
            return self.url(self._beside_references(name, value, wanted, description), description)
        if looks_secret(name, value):
            return self._secret(value, wanted, description)
        return self._without_parts(value, description)

    def url(self, url: str, description: str) -> str:
        return self.translate(self._without_parts(url, description))

    def _without_parts(self, text: str, description: str) -> str:
        """*text* with variables for the secrets that are parts of it. One within a reference, as its default, is left
        to ``translate``."""
        references = iter(references_in(text))
        opens, closes = 0, 0
        done, at = "", 0
        for start, end, name in secrets_in(text):
            while closes <= start:
                opens, closes = next(references, (len(text), len(text) + 1))
            if end <= opens:
                secret = self._secret(text[start:end], f"{self._name}_{name}", f"{name} in {description}")
                done, at = done + text[at:start] + secret, end
        return done + text[at:]

    def _beside_references(self, name: str, value: str, wanted: str, description: str) -> str:
        """*value* with variables for the secrets between its references."""
        done = ""
        for part, is_text in between_references(value):
            words = re.split(r"(\s+)", part) if is_text and not is_masked(part.strip()) else [part]
            for word in words:
                core = word.strip()
                secret = is_masked(core) or (looks_secret(name, "x") and looks_secret("", core))
                if is_text and core and "://" not in core and secret:
                    word = word.replace(core, self._secret(core, wanted, f"part of {description}"), 1)
                done += word
        return done

    def _secret(self, value: str, wanted: str, description: str) -> str:
        about = f"{description} of {self._name}"
        return self._variables.secret(value, wanted, self._name, about, optional=self.optional)

    def translate(self, text: str) -> str:
        return self._variables.translate(text, self._notes, self._inputs, optional=self.optional)

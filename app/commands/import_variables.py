"""Variables in place of secrets and of other clients' references, for ``wicketgate import`` (OPS-4)."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from app.commands.import_secrets import looks_secret, secrets_in

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

    References in *texts*, the whole file, keep their names. *inputs* describes, in the client's words, the values that
    the client asks its user for.
    """

    def __init__(self, texts: Iterable[str], inputs: Mapping[str, str]) -> None:
        # By name the description of the value, never the value.
        self.descriptions: dict[str, str] = {}
        self._inputs = inputs
        self._secrets: dict[tuple[str, str], str] = {}
        self._values: dict[str, str | None] = {
            _reference_name(match): None for text in texts for match in _REFERENCE.finditer(text)
        }
        # By server and name the next number to try, so that a thousand values do not each begin at the first.
        self._next: dict[tuple[str, str], int] = {}

    def translate(self, text: str, notes: list[str], *, optional: bool) -> str:
        """Spell other clients' references as ours. Those that have no equivalent get a note.

        With *optional* a variable that is not set is empty instead of an error.
        """

        def spell(match: re.Match[str]) -> str:
            if _SEPARATORS & {match["plain"], match["other"]}:
                return "/"
            name, default = _reference_name(match), match["default"]
            if default is not None and (looks_secret(name, default) or secrets_in(default)):
                notes.append(f"the default of {name} looks like a secret and was left out")
                default = None
            if match["other"] is not None:
                notes.append(f"{match.group()!r} became the variable {name}")
            return self.needed(name, self._inputs.get(match["named"] or "", ""), default, optional=optional)

        return _spelled(text, spell)

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
        super().__init__((), {})

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

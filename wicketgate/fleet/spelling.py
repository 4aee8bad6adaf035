"""The spellings in which a service may repeat a credential (UP-58, UP-61).

Nothing that hides a credential on purpose is found: a service that has it can send it in any disguise.
"""

import re
from base64 import b64encode, urlsafe_b64encode
from dataclasses import dataclass
from html.entities import html5
from itertools import groupby
from json import dumps
from urllib.parse import quote

import msgspec

_MAX_SPELT = 4_096
"""A longer value is looked for in fewer spellings: a pattern costs time and memory by its characters."""

_LETTERS = re.compile("[A-Za-z0-9]+")
_SHORTEST_PROBE, _LONGEST_PROBE = 4, 12
_CONTROLS = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_NAMES: dict[str, list[str]] = {}
for _name, _text in html5.items():
    if _name.endswith(";"):
        _NAMES.setdefault(_text, []).append(_name)


@dataclass(frozen=True, slots=True)
class Spelt:
    """*pattern* finds all spellings. *forms*: the most usual ones, as they are. *probes*: one of them is in each value,
    encoded as JSON, that holds a spelling."""

    pattern: re.Pattern[str]
    forms: tuple[str, ...]
    probes: tuple[bytes, ...]


def spelt(value: str) -> Spelt:
    """The spellings of *value*: as it is, in base64 (within other bytes too), and with its characters written as JSON,
    HTML or URLs write them, up to twice."""
    data = value.encode("utf-8", "surrogatepass")
    usual = {value, dumps(value)[1:-1], dumps(value, ensure_ascii=False)[1:-1], quote(data, safe="")}
    if len(value) > _MAX_SPELT:
        base64 = {b64encode(data).decode().rstrip("=")}
        patterns = [re.escape(form) for form in _longest_first(usual | base64)]
    else:
        usual |= {re.sub("%..", lambda octet: octet.group().lower(), quote(data, safe="")), value.replace("/", "\\/")}
        base64 = set(_in_base64(data))
        patterns = [re.escape(form) for form in _longest_first(base64)] + [_loosely(value)]
    whole = {encoded.decode() for encoded in (b64encode(data), urlsafe_b64encode(data))}
    probes = {_probe(form) for form in (*usual, *whole)} | {_probe(form) for form in _in_base64(_core(value))}
    forms = _longest_first(usual | base64 | {form.rstrip("=") for form in whole})
    return Spelt(re.compile("|".join(patterns)), tuple(forms), tuple(probes))


def _longest_first(forms: set[str]) -> list[str]:
    return sorted(forms, key=lambda form: (-len(form), form))


def _in_base64(data: bytes) -> set[str]:
    """The characters that *data* becomes in base64, with and without padding; and those that it becomes wherever it
    stands within other bytes, without the characters that it shares with its neighbours."""
    forms: set[str] = set()
    for encode in (b64encode, urlsafe_b64encode):
        alone = encode(data).decode("ascii")
        forms |= {alone, alone.rstrip("=")}
        for before in range(3):
            encoded = encode(bytes(before) + data).decode("ascii")
            forms.add(encoded[(0, 2, 3)[before] : (before + len(data)) * 8 // 6])
    return forms


def _loosely(value: str) -> str:
    """A pattern for *value*, whose letters and digits stand as they are."""
    return "".join(_loosely_one(char, len(list(run))) for char, run in groupby(value))


def _loosely_one(char: str, times: int) -> str:
    if char.isascii() and char.isalnum():
        return char * times
    code = ord(char)
    number = rf"&(?:amp;)?#(?:0{{0,4}}{code}|x0{{0,4}}{code:x});"
    octets = "".join(rf"%(?:25){{0,2}}{octet:02x}" for octet in char.encode("utf-8", "surrogatepass"))
    escaped = dumps(char)[1:-1] if code > 0xFFFF else rf"\\u{code:04x}"
    escaped = "".join(r"\\{1,4}" + piece for piece in re.findall("u[0-9a-f]{4}", escaped))
    ways = [f"(?i:{octets}|{escaped}|{number})", *(f"&(?:amp;)?{name}" for name in _NAMES.get(char, ()))]
    ways += [r"\\{1,4}" + _CONTROLS[char]] if char in _CONTROLS else []
    ways += [r"\+"] if char == " " else []
    if char == "\\":
        # Quoting writes each twice. A run is one piece, so that there are few ways to match.
        return rf"(?:\\{{{times},{4 * times}}}|(?:{'|'.join(ways)}){{{times}}})"
    return rf"(?:\\{{0,4}}{re.escape(char)}|{'|'.join(ways)})" + (f"{{{times}}}" if times > 1 else "")


def _core(value: str) -> bytes:
    """The part of *value* by which it is looked for: letters and digits, which every spelling has as they are; all of
    it where there is no such part."""
    run = max(_LETTERS.findall(value), key=len, default="")
    return (run[:_LONGEST_PROBE] if len(run) >= _SHORTEST_PROBE else value).encode("utf-8", "surrogatepass")


def _probe(form: str) -> bytes:
    """The core of *form* as it stands in an encoded value."""
    return msgspec.json.encode(_core(form).decode("utf-8", "replace"))[1:-1]

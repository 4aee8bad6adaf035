"""What a message gives in its own words: the values that the scripted model may put into arguments.

Only what stands in the text is found; nothing is made up, and nothing depends on a clock or a locale.
"""

import json
import re
import zoneinfo
from dataclasses import dataclass
from functools import cache
from typing import Any

MAX_MESSAGE_CHARS = 4_000

_KEY_VALUE = re.compile(r"""(?<![\w.])([A-Za-z_]\w{0,63})=("[^"]*"|'[^']*'|[^\s,;]+)""")
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|`([^`]+)`|(?<!\w)'([^']+)'(?!\w)")
_TOKEN = re.compile(r"[^\s,;\"“”`'()<>]+")
_NUMBER = re.compile(r"(?<![\w.:/~^-])-?\d{1,15}(?:\.\d+)?(?![\w:/-]|\.\d)")
_ID = re.compile(r"[A-Za-z]{2,16}[_-]\d{1,12}|[A-Z]{2,8}-?\d{2,12}")
_DATE = re.compile(r"(?<!\d)\d{4}-\d{2}-\d{2}(?!\d)")
_TIME = re.compile(r"(?<![\d:])(?:[01]?\d|2[0-3]):[0-5]\d(?![\d:])")
_EMAIL = re.compile(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+")
_URL = re.compile(r"https?://[^\s\"'<>]+")
_PATH = re.compile(r"(?<!\S)(?:\.{1,2}|~)?/[^\s,;\"']*|(?<!\S)\.(?=\s|$)")
_HERE = re.compile(r"\b(?:this|the current) (?:repository|repo|directory|folder|project|checkout)\b|\bhere\b", re.I)
_REVISION = re.compile(r"\bHEAD(?:[~^]\d*)*|\b(?=[a-f]*\d)[0-9a-f]{7,40}\b")
_NUMBER_WORDS = {
    word: number
    for number, word in enumerate(["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"], 1)
}
_NUMBER_WORD = re.compile(rf"\b(?:{'|'.join(_NUMBER_WORDS)})\b", re.I)


@dataclass(frozen=True, slots=True)
class Values:
    """What was found, each kind in the order of the text. *tokens* are all words, as they are written."""

    text: str
    tokens: tuple[str, ...]
    quoted: tuple[str, ...]
    numbers: tuple[int | float, ...]
    ids: tuple[str, ...]
    dates: tuple[str, ...]
    times: tuple[str, ...]
    emails: tuple[str, ...]
    urls: tuple[str, ...]
    paths: tuple[str, ...]
    revisions: tuple[str, ...]
    zones: tuple[str, ...]


def read_values(message: str) -> Values:
    """Values of the first 4,000 characters of *message*."""
    text = message[:MAX_MESSAGE_CHARS]
    tokens = tuple(filter(None, (token.rstrip(".!?:") for token in _TOKEN.findall(text))))
    paths = tuple(path if path == "." else path.rstrip(".!?:") or "/" for path in _PATH.findall(text))
    return Values(
        text=text,
        tokens=tokens,
        quoted=tuple(next(filter(None, groups)) for groups in _QUOTED.findall(text)),
        numbers=_numbers(text),
        ids=tuple(token for token in tokens if _ID.fullmatch(token)),
        dates=tuple(_DATE.findall(text)),
        times=tuple(_TIME.findall(text)),
        emails=tuple(email.rstrip(".") for email in _EMAIL.findall(text)),
        urls=tuple(url.rstrip(".,!?)") for url in _URL.findall(text)),
        paths=paths or ((".",) if _HERE.search(text) else ()),
        revisions=tuple(_REVISION.findall(text)),
        zones=_zones(text),
    )


def given_arguments(message: str) -> dict[str, Any]:
    """The first JSON object in *message*; without one, its ``key=value`` pairs, read as JSON where they are JSON."""
    text = message[:MAX_MESSAGE_CHARS]
    decoder = json.JSONDecoder()
    start = text.find("{")
    while start >= 0:
        try:
            found, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            return found
        start = text.find("{", start + 1)
    # The query of an address is not meant as arguments.
    pairs = _KEY_VALUE.findall(_URL.sub(" ", text))
    return {key: _scalar(value) for key, value in pairs}


def _scalar(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text.rstrip(".!?") or text


def _numbers(text: str) -> tuple[int | float, ...]:
    found: list[tuple[int, int | float]] = []
    for match in _NUMBER.finditer(text):
        digits = match.group()
        found.append((match.start(), float(digits) if "." in digits else int(digits)))
    found += [(match.start(), _NUMBER_WORDS[match.group().lower()]) for match in _NUMBER_WORD.finditer(text)]
    return tuple(number for _, number in sorted(found, key=lambda one: one[0]))


def _zones(text: str) -> tuple[str, ...]:
    """IANA names written out, or the zone of a city that is named: ``New York`` gives ``America/New_York``."""
    found: dict[str, None] = {}
    words = re.findall(r"[A-Za-z][\w+/-]*", text)
    position = 0
    while position < len(words):
        for length in (3, 2, 1):
            phrase = words[position : position + length]
            if len(phrase) == length and (zone := _zone_names().get("_".join(phrase).lower())):
                found.setdefault(zone)
                position += length - 1
                break
        position += 1
    return tuple(found)


@cache
def _zone_names() -> dict[str, str]:
    """By whole name and by city, in lower case. A city name that two zones share goes to the first region's."""
    names: dict[str, str] = {}
    for zone in sorted(zoneinfo.available_timezones()):
        names[zone.lower()] = zone
        region, _, city = zone.rpartition("/")
        # Etc, US, posix and the like hold aliases, and "Mountain" or "Central" is no city.
        if region in _REGIONS or region.startswith("America/"):
            names.setdefault(city.lower(), zone)
    # Bare zones such as "Cuba" or "Eire" stay, but an English word must not be read as one.
    return {name: zone for name, zone in names.items() if "/" in zone or zone in ("UTC", "GMT")}


_REGIONS = frozenset(
    ["Africa", "America", "Antarctica", "Arctic", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"]
)

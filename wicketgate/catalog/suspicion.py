"""Signs that a definition speaks to the model behind the user's back (W-PINS; DESIGN §3 "Cards").

A small set of plain signs, looked for in every text of a definition in linear time. They prove nothing: a person
looks, or the operator has such tools kept out.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

MAX_SIGNS = 5

# Control characters, soft hyphen, zero-width and bidirectional marks, invisible operators, fillers, tags. Not the
# selectors and joiners that emoji and several scripts need.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
    "|(?<=[\x00-\x7f])[\u200c\u200d](?=[\x00-\x7f])"
)
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

_PHRASES = (
    "do not tell the user",
    "don't tell the user",
    "do not inform the user",
    "don't inform the user",
    "do not mention this to the user",
    "don't mention this to the user",
    "without telling the user",
    "without informing the user",
    "without the user knowing",
    "hide this from the user",
    "keep this from the user",
    "not visible to the user",
    "<important>",
    "<system>",
    "</system>",
    "<|im_start|>",
    "<|system|>",
    "[system]",
    "your system prompt",
    "the system prompt",
    "reveal your instructions",
    "new instructions:",
    "you are now in",
    "~/.ssh",
    "id_rsa",
    "id_ed25519",
    "~/.aws",
    "~/.cursor",
    "/etc/passwd",
    "/etc/shadow",
    "mcp.json",
    "claude_desktop_config",
)
# Only looked for where its first word is. Each part is bounded, so it is linear.
_OVERRIDE = re.compile(
    r"\b(?:ignore|disregard|forget|override)(?: (?:all|any|the|your|my|of|these|those)){0,4}"
    r" (?:previous|prior|earlier|above|preceding|other|existing)(?: \w{1,20}){0,2}"
    r" (?:instructions?|prompts?|rules?|directions?|guidelines?|messages?|tools?)\b"
)
_OVERRIDING = ("ignore", "disregard", "forget", "override")

_MAX_VALUES = 100_000
_BETWEEN = " || "  # between two texts, so that no sign is found across them


def suspicious_signs(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """What a person should look at, in words; at most five, none for an ordinary tool."""
    text = _BETWEEN.join(_texts(definition))
    found: list[str] = []
    hidden = _CONTROL.search(text) if text.isascii() else _HIDDEN.search(text)
    if hidden is not None:
        characters = sorted(set((_CONTROL if text.isascii() else _HIDDEN).findall(text)))
        found.append("hidden characters: " + ", ".join(f"U+{ord(char):04X}" for char in characters[:MAX_SIGNS]))
        text = _HIDDEN.sub("", text)
    plain = " ".join(text.lower().replace("\u2019", "'").split())
    found += [f"words to the model: {phrase!r}" for phrase in _PHRASES if phrase in plain]
    if any(word in plain for word in _OVERRIDING) and (override := _OVERRIDE.search(plain)):
        found.append(f"words to the model: {override.group()[:80]!r}")
    return tuple(found[:MAX_SIGNS])


def _texts(definition: Mapping[str, Any]) -> Iterator[str]:
    """Every string, names of arguments included; ``_meta`` is not shown to models."""
    waiting: list[object] = [value for key, value in definition.items() if key != "_meta"]
    for _ in range(_MAX_VALUES):
        if not waiting:
            return
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            waiting += value.keys()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value

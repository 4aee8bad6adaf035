"""What a docstring tells of a function and of its arguments, in the two common ways of writing it (W-KINDS)."""

import re
from dataclasses import dataclass

_ARGUMENTS = re.compile(r"(?:args|arguments|parameters|params)\s*:", re.IGNORECASE)
_ONE_OF_THEM = re.compile(r"\*{0,2}(\w+)\s*(?:\([^()]*\))?\s*:\s*(.*)")
_PARAM_FIELD = re.compile(r":param\s+(?:\S+\s+)?(\w+)\s*:\s*(.*)")
_OTHER_FIELD = re.compile(r":(?:type|returns?|rtype|raises?)\b[^:]*:")


@dataclass(frozen=True, slots=True)
class Docstring:
    description: str
    arguments: dict[str, str]


def read_docstring(text: str) -> Docstring:
    """*text* as ``inspect.getdoc`` gives it. An ``Args:`` section and ``:param x:`` fields tell of the arguments; what
    else is not a field belongs to the description."""
    description: list[str] = []
    arguments: dict[str, list[str]] = {}
    current: list[str] | None = description
    section_indent: int | None = None  # of the names in an Args section; 0 until the first one
    for line in text.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if stripped and indent == 0:
            section_indent = None
            if _ARGUMENTS.fullmatch(stripped):
                section_indent, current = 0, None
                continue
            if found := _PARAM_FIELD.fullmatch(stripped):
                current = arguments.setdefault(found.group(1), [])
                stripped = found.group(2)
            else:
                current = None if _OTHER_FIELD.match(stripped) else description
        elif section_indent is not None and stripped and (section_indent == 0 or indent <= section_indent):
            found = _ONE_OF_THEM.fullmatch(stripped)
            section_indent = indent
            current = arguments.setdefault(found.group(1), []) if found else None
            stripped = found.group(2) if found else ""
        if current is description:
            description.append(line.rstrip())
        elif current is not None:
            current.append(stripped)
    told = {name: " ".join(" ".join(lines).split()) for name, lines in arguments.items()}
    return Docstring("\n".join(description).strip(), {name: words for name, words in told.items() if words})

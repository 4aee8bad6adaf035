"""Foreign text made harmless for a terminal."""

import json


def printable(line: str) -> str:
    """Escapes every character that is not printable as JSON does, so that JSON stays the same JSON.

    Nothing in the text can then move the cursor, hide, or reverse the line.
    """
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def printable_text(text: str) -> str:
    """Does the same for a text of several lines."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def count(number: float, noun: str, many: str = "") -> str:
    """Returns ``1 tool`` or ``2 tools``; *many* is a plural that takes more than an s."""
    return f"{number:g} {noun if number == 1 else many or f'{noun}s'}"

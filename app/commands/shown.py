"""A stranger's text for a terminal: nothing in it may move the cursor, hide, or turn the line around."""

import json


def shown(line: str) -> str:
    """On one line. What is not printable is written as JSON writes it, so that JSON stays JSON."""
    if line.isprintable():
        return line
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in line)


def shown_text(text: str) -> str:
    """The same for a text of several lines."""
    return "\n".join("\t".join(map(shown, line.split("\t"))) for line in text.split("\n"))

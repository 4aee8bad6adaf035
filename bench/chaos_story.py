"""The plot that the parts of ``make chaos`` share: which numbers there are, what the tools and the model say of each.

Everything follows from the number of a call, which is used once in a run, so that an answer can be judged by whoever
asked, and an effect is known by its number alone. Decides only.
"""

import hashlib
from collections.abc import Sequence
from typing import Any

BANK, DESK = "bank", "desk"
PERSON = "Ada"
"""The answer to every question."""

_NUMBER = {"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}
TOOLS: dict[str, tuple[dict[str, Any], ...]] = {
    BANK: (
        {"name": "charge", "description": "Charge an account.", "inputSchema": _NUMBER},
        {
            "name": "look",
            "description": "Look at an account.",
            "inputSchema": _NUMBER,
            "annotations": {"readOnlyHint": True},
        },
    ),
    DESK: ({"name": "sign", "description": "Sign a paper, by name.", "inputSchema": _NUMBER},),
}
FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def chance(number: int, what: str) -> float:
    """Between 0 and 1, the same for the same arguments in every process."""
    return int.from_bytes(hashlib.sha256(f"{what} {number}".encode()).digest()[:4], "big") / 2**32


def pause_s(number: int) -> float:
    """Time of a tool between its effect and its answer: most are quick."""
    return 0.0 if chance(number, "quick") < 0.6 else chance(number, "pause") * 0.6


def answer(tool: str, number: int) -> str:
    """The one right result of a tool."""
    match tool:
        case "charge":
            return f"charged {number}"
        case "look":
            return f"account {number} holds {hashlib.sha256(str(number).encode()).hexdigest()[:12]}"
    return f"{PERSON} signed {number}"


def charges(number: int) -> bool:
    """Returns whether a chat of this number charges; others only look."""
    return chance(number, "charges") < 0.7


def first_words(number: int) -> Sequence[str]:
    """Deltas of the turn that asks for the tool; none in half of all chats, whose turn shows nothing but the call."""
    count = int(chance(number, "words") * 12) if chance(number, "silent") < 0.5 else 0
    return [f"w{number}.{place} " for place in range(count)]


def last_words(number: int, result: str) -> Sequence[str]:
    """Deltas of the turn behind the tool: the result is said if it is the right one."""
    right = answer("charge" if charges(number) else "look", number)
    said = right if right in result else "it failed"
    return [f"so: {said}. ", *(f"l{number}.{place} " for place in range(4 + int(chance(number, "last") * 12)))]


def thought_s(number: int, turn: int) -> float:
    """Time of the model before its first word of a turn."""
    return 0.02 + chance(number, f"thought {turn}") ** 3 * 1.5


def between_words_s(number: int) -> float:
    return 0.01 + chance(number, "between") * 0.06

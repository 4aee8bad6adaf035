"""Tool-call ids that a provider takes: its own as they are, others mapped, always the same way."""

import re
from hashlib import blake2b

_LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

MISTRAL_ID = re.compile(r"[A-Za-z0-9]{9}")
ANTHROPIC_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def accepted_id(call_id: str, accepted: re.Pattern[str]) -> str:
    """*call_id*, or nine letters and digits made from it, which are in every grammar here."""
    if accepted.fullmatch(call_id):
        return call_id
    number = int.from_bytes(blake2b(call_id.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    letters = []
    for _ in range(9):
        number, place = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[place])
    return "".join(letters)

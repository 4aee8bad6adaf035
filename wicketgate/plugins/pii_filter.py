"""Data about persons, by its shape and, where there is one, by its check digits (gatekit G92 to G94)."""

from collections.abc import Mapping
from typing import Literal

from wicketgate.plugins.findings import Scanner
from wicketgate.plugins.text_filter import FilterConfig, TextFilter

Kind = Literal["email", "credit_card", "national_id", "iban", "ip_address", "phone"]

_GAP = r"(?:[ -]|\xc2\xa0|\xe2\x80[\x90-\x93\xaf])"
"""Between groups of digits: a blank or hyphen, also those that do not break (as bytes of UTF-8)."""

# Ranges stand in the patterns, not in the judge: a text full of look-alikes then holds no match at all.
_OCTET = r"(?:25[0-5]|2[0-4]\d|[01]?\d?\d)"
_SSN = (  # without the parts that the Social Security Administration never gives out
    r"\b(?:00[1-9]|0[1-9]\d|[1-578]\d\d|6[0-57-9]\d|66[0-57-9])"
    r"-(?:0[1-9]|[1-9]\d)-(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})\b"
)

_PATTERNS: Mapping[Kind, tuple[str, ...]] = {
    "email": (r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",),
    "iban": (r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b",),
    "credit_card": (
        rf"\b\d{{4}}(?:{_GAP}\d{{4}}){{3,}}\b",
        rf"\b3[47]\d{{2}}{_GAP}\d{{6}}{_GAP}\d{{5}}\b",
        r"\b\d{13,19}\b",
    ),
    "national_id": (_SSN,),
    "ip_address": (rf"\b{_OCTET}(?:\.{_OCTET}){{3}}\b", r"\b[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{1,4}){7}\b"),
    "phone": (
        r"\+\d{1,3}[ .-]?\(?\d{1,4}\)?(?:[ .-]?\d{2,4}){2,4}\b",
        r"\(\d{3}\) ?\d{3}[ .-]\d{4}\b",
        r"\b\d{3}[.-]\d{3}[.-]\d{4}\b",
    ),
}
_NOT_DIGITS = bytes(set(range(256)) - set(b"0123456789"))
_DOUBLED = bytes.maketrans(b"0123456789", b"0246813579")
"""What a digit counts that Luhn doubles: 2 x 7 is 14, is 5."""
_LETTERS = {ord(letter): str(value) for value, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 10)}
"""What a letter counts in an IBAN."""

_CARD_BEGINS = b"23456"
_FEW_GROUPS = 12


class PiiConfig(FilterConfig):
    """*kinds* are looked for; all of them, if not given."""

    kinds: tuple[Kind, ...] = tuple(_PATTERNS)


class PiiFilter(TextFilter):
    title = "PII Filter"
    Config = PiiConfig
    config: PiiConfig

    def make_scanner(self) -> Scanner:
        wanted = frozenset(self.config.kinds)
        patterns = [pattern for kind, several in _PATTERNS.items() if kind in wanted for pattern in several]

        def judge(match: bytes) -> str | None:
            kind = _kind(match)
            return kind if kind in wanted else None

        return Scanner(patterns, judge, lambda kind: f"[{kind.upper()} REDACTED by Wicketgate]")


def _kind(match: bytes) -> Kind | None:
    """What matched, told by its characters; None when its check digits or ranges say that it is none."""
    if b"@" in match:
        return "email"
    if match[:1] in (b"+", b"("):
        return "phone"
    if match[:2].isalpha() and match[2:4].isdigit() and b":" not in match:
        if _iban_holds(match.replace(b" ", b"")):
            return "iban"
        rest = match[4:].translate(None, _NOT_DIGITS)  # what only looks like one may hide a card
        return (
            "credit_card" if any(_is_card(rest[start : start + 16]) for start in range(0, len(rest) - 15, 4)) else None
        )
    if b":" in match:
        return "ip_address"
    digits = match.translate(None, _NOT_DIGITS)
    if match.count(b".") == 3:
        return "ip_address"
    if len(digits) >= 13:
        return "credit_card" if _holds_card(digits) else None
    if len(digits) == 9:
        return "national_id"
    return "phone"


def _holds_card(digits: bytes) -> bool:
    """Whether this is a card number, or groups of four among which one stands.

    A long row of groups is a table of numbers, where one block in ten passes Luhn by chance: it counts only if every
    block of four groups does.
    """
    if len(digits) <= 19:
        return _is_card(digits)
    if len(digits) <= 4 * _FEW_GROUPS:
        return any(_is_card(digits[start : start + 16]) for start in range(0, len(digits) - 15, 4))
    return len(digits) % 16 == 0 and all(_is_card(digits[start : start + 16]) for start in range(0, len(digits), 16))


def _is_card(digits: bytes) -> bool:
    """The check digit of Luhn, and a first digit that payment cards have."""
    if digits[0] not in _CARD_BEGINS:
        return False
    counted = sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED))
    return (counted - 48 * len(digits)) % 10 == 0


def _iban_holds(iban: bytes) -> bool:
    """ISO 7064 mod 97, letters counted from 10."""
    if not 15 <= len(iban) <= 34:
        return False
    return int((iban[4:] + iban[:4]).decode().translate(_LETTERS)) % 97 == 1

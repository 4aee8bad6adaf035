"""The filters that come with Wicketgate: secrets, personal data, and orders to the model (ROUTE-21, ROUTE-26 to
ROUTE-29)."""

from collections.abc import Mapping
from typing import Literal

from wicketgate.plugins.text_filter import FilterConfig, Scanner, TextFilter

# Credentials: keys of well-known services, tokens, private keys, passwords in URLs.
_ASSIGNED = r"\b(?i:api[_-]?key|secret(?:[_-]?key)?|(?:access|auth)[_-]?token|passwd|password)"

_SECRETS = (
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{30,}\b",
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bgl(?:pat|ptt|rt|dt|soat)-[A-Za-z0-9_-]{20,}",
    r"\bsk-(?:proj-|ant-|svcacct-|or-v1-)?[A-Za-z0-9_-]{20,}",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\bhooks\.slack\.com/services/[A-Za-z0-9/]{20,100}",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"\bAIza[A-Za-z0-9_-]{35}",
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    r"\bnpm_[A-Za-z0-9]{36}\b",
    r"\bpypi-[A-Za-z0-9_-]{50,}",
    r"\bhf_[A-Za-z0-9]{30,}\b",
    r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
    r"\bwg_[a-z0-9-]{1,32}_[A-Za-z0-9_-]{20,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]*-----END [A-Z ]*PRIVATE KEY-----|[A-Za-z0-9+/=\s\\]*)",
    r"://[^\s/:@\"']+:[^\s/@\"']+@",
    r"\b(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/=]{20,}",
    r"\b(?i:bearer|basic) [A-Za-z0-9._~+/-]{16,}=*",
    _ASSIGNED + r"[\"']?\s?[:=]\s?[\"']?[A-Za-z0-9._~+/!@#$%^&*-]{8,}",
)


class SecretsFilter(TextFilter):
    """Finds credentials by the shapes that services publish for scanners; words that merely look random stay."""

    title = "Secrets Filter"
    # What is for the client alone is for its pages too, and a credential is for neither (ACCESS-82).
    unread = frozenset()

    def make_scanner(self) -> Scanner:
        return Scanner(_SECRETS, lambda match: "secret", lambda kind: "[SECRET REDACTED by Wicketgate]")


# Personal data.
Kind = Literal["email", "credit_card", "national_id", "iban", "ip_address", "phone"]

_GAP = r"(?:[ -]|\xc2\xa0|\xe2\x80[\x90-\x93\xaf])"
"""Between groups of digits: a blank or hyphen, also one without a break (as bytes of UTF-8)."""

# The patterns check the ranges, so that a text full of look-alikes holds no match.
_OCTET = r"(?:25[0-5]|2[0-4]\d|[01]?\d?\d)"
_SSN = (  # without the parts that the Social Security Administration never gives out
    r"\b(?:00[1-9]|0[1-9]\d|[1-578]\d\d|6[0-57-9]\d|66[0-57-9])"
    r"-(?:0[1-9]|[1-9]\d)-(?:000[1-9]|00[1-9]\d|0[1-9]\d\d|[1-9]\d{3})\b"
)

_PERSONAL: Mapping[Kind, tuple[str, ...]] = {
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
"""Values of the digits that Luhn doubles: 7 becomes 14, and that is 5."""
_LETTERS = {ord(letter): str(value) for value, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 10)}
"""Values of letters in an IBAN."""

_CARD_BEGINS = b"23456"
_FEW_GROUPS = 12


class PiiConfig(FilterConfig):
    """*kinds* to look for; the default is all of them."""

    kinds: tuple[Kind, ...] = tuple(_PERSONAL)


class PiiFilter(TextFilter):
    """Finds personal data by its shape and, where there are any, by its check digits."""

    title = "PII Filter"
    Config = PiiConfig
    config: PiiConfig

    def make_scanner(self) -> Scanner:
        wanted = frozenset(self.config.kinds)
        patterns = [pattern for kind, several in _PERSONAL.items() if kind in wanted for pattern in several]

        def judge(match: bytes) -> str | None:
            kind = _kind(match)
            return kind if kind in wanted else None

        return Scanner(patterns, judge, lambda kind: f"[{kind.upper()} REDACTED by Wicketgate]")


def _kind(match: bytes) -> Kind | None:
    """Returns the kind of a match by its characters; None if its check digits are wrong."""
    if b"@" in match:
        return "email"
    if match[:1] in (b"+", b"("):
        return "phone"
    # Two letters and two digits begin an IBAN.
    if match[:2].isalpha() and match[2:4].isdigit() and b":" not in match:
        if _iban_holds(match.replace(b" ", b"")):
            return "iban"
        rest = match[4:].translate(None, _NOT_DIGITS)  # a false IBAN may hide a card
        return (
            "credit_card" if any(_is_card(rest[start : start + 16]) for start in range(0, len(rest) - 15, 4)) else None
        )
    if b":" in match:
        return "ip_address"
    # The rest is digits and separators: their number decides.
    digits = match.translate(None, _NOT_DIGITS)
    if match.count(b".") == 3:
        return "ip_address"
    if len(digits) >= 13:
        return "credit_card" if _holds_card(digits) else None
    if len(digits) == 9:
        return "national_id"
    return "phone"


def _holds_card(digits: bytes) -> bool:
    """Returns true for a card number, or for groups of four digits that contain one.

    A long row of groups is a table of numbers, where one block in ten passes Luhn by chance. It counts only if every
    block of four groups passes.
    """
    if len(digits) <= 19:
        return _is_card(digits)
    if len(digits) <= 4 * _FEW_GROUPS:
        return any(_is_card(digits[start : start + 16]) for start in range(0, len(digits) - 15, 4))
    return len(digits) % 16 == 0 and all(_is_card(digits[start : start + 16]) for start in range(0, len(digits), 16))


def _is_card(digits: bytes) -> bool:
    """Checks the digit of Luhn, and that the first digit is one of payment cards."""
    if digits[0] not in _CARD_BEGINS:
        return False
    counted = sum(digits[-1::-2]) + sum(digits[-2::-2].translate(_DOUBLED))
    return (counted - 48 * len(digits)) % 10 == 0


def _iban_holds(iban: bytes) -> bool:
    """Checks the digits by ISO 7064 mod 97, letters counted from 10."""
    if not 15 <= len(iban) <= 34:
        return False
    return int((iban[4:] + iban[:4]).decode().translate(_LETTERS)) % 97 == 1


# Orders to the model.
_EARLIER = "(?:previous|prior|earlier|above|preceding|existing|original|system)"
_ORDERS = "(?:instructions?|prompts?|rules?|directions?|guidelines?|commands?|context)"
_HIDDEN = "(?:system prompt|(?:hidden|initial) instructions?)"
_NAMED = "(?:all|any|the|of|your|my|these|those|and)"

_BLANK = r"(?:\s|\xc2\xa0|\xe2\x80[\x80-\x8f\xa8-\xaf]|\xe2\x81[\x9f-\xa4]|\xe3\x80\x80|\xef\xbb\xbf)+"
"""White space, also without a break or a width (as bytes of UTF-8)."""

# A blank stands for any white space.
_PHRASES = (
    rf"\b(?:ignore|disregard|forget|override|bypass)(?: {_NAMED})* {_EARLIER}(?: (?:and )?{_EARLIER})? {_ORDERS}\b",
    r"\b(?:ignore|disregard|forget) (?:everything|anything|all) (?:above|before|you were told)\b",
    r"\byou are now (?:in )?(?:an? )?(?:dan|jailbroken|unrestricted|root|(?:developer|admin|administrator) mode)\b",
    rf"\b(?:reveal|print|show|repeat|output|leak) (?:me )?(?:your|the) {_HIDDEN}\b",
    r"\b(?:do not|don't|never) (?:tell|inform|alert|notify|mention (?:this|it) to) the user\b",
    r"\bnew (?:system )?instructions?\s*:",
)
_MARKS = (
    r"</?\s*(?:system|assistant|developer)\s*>",
    r"<\|(?:im_start|im_end|system|user|assistant|endoftext|eot_id|start_header_id|end_header_id)\|>",
    r"\[/?INST\]|<</?SYS>>",
)
_INJECTIONS = [f"(?i:{pattern})" for pattern in (*(phrase.replace(" ", _BLANK) for phrase in _PHRASES), *_MARKS)]


class PromptInjectionConfig(FilterConfig):
    """The default only notes what was found: to refuse it also refuses documents that quote an attack."""

    action: Literal["redact", "block", "audit_only"] = "audit_only"


class PromptInjectionFilter(TextFilter):
    """Finds common orders to a model, and forged role marks.

    A list of phrases stops the careless only: rules about flows and approvals limit the harm.
    """

    title = "Prompt Injection Defense"
    Config = PromptInjectionConfig
    config: PromptInjectionConfig

    def make_scanner(self) -> Scanner:
        return Scanner(
            _INJECTIONS, lambda match: "prompt_injection", lambda kind: "[PROMPT INJECTION REDACTED by Wicketgate]"
        )

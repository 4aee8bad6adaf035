"""Texts that try to give the model orders: the common phrases and forged role marks (gatekit G57, G96, G97).

A list of phrases stops the careless, not the careful: access rules and approvals are what bounds the harm.
"""

from wicketgate.plugins.findings import Scanner
from wicketgate.plugins.text_filter import TextFilter

_EARLIER = "(?:previous|prior|earlier|above|preceding|existing|original|system)"
_ORDERS = "(?:instructions?|prompts?|rules?|directions?|guidelines?|commands?|context)"
_HIDDEN = "(?:system prompt|(?:hidden|initial) instructions?)"
_NAMED = "(?:all|any|the|of|your|my|these|those|and)"

_BLANK = r"(?:\s|\xc2\xa0|\xe2\x80[\x80-\x8f\xa8-\xaf]|\xe2\x81[\x9f-\xa4]|\xe3\x80\x80|\xef\xbb\xbf)+"
"""White space, also what does not break or is not seen (as bytes of UTF-8)."""

# A blank stands for any of it.
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
_PATTERNS = [f"(?i:{pattern})" for pattern in (*(phrase.replace(" ", _BLANK) for phrase in _PHRASES), *_MARKS)]


class PromptInjectionFilter(TextFilter):
    title = "Prompt Injection Defense"

    def make_scanner(self) -> Scanner:
        return Scanner(
            _PATTERNS, lambda match: "prompt_injection", lambda kind: "[PROMPT INJECTION REDACTED by Wicketgate]"
        )

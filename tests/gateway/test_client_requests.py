"""Requests of a server for the client's model: whoever looks at one sees all that the model reads."""

import pytest

from tests.support.requirement import requirement
from wicketgate.catalog.pins import suspicious_signs
from wicketgate.gateway.client_requests import SAMPLE, request_of
from wicketgate.gateway.questions import QuestionRefused


def prompt(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": {"type": "text", "text": text}}], "maxTokens": 9, **more}


HIDDEN = [
    "".join(chr(0xE0100 + byte) for byte in b"\x10\x20\x30"),
    "".join(chr(0xE0000 + ord(char)) for char in "obey"),
    "\ufe00\ufe01\ufe02\ufe03",
    "\u200c\u200d\u200c\u200c\u200d",
    "\u200d",
    "\u115f\u3164\uffa0\u034f",
    "\ud800",
    "\x1b[8m",
    "\r",
]


@requirement("UP-129")
@pytest.mark.parametrize("hidden", HIDDEN)
def test_nothing_hidden_is_in_a_prompt(hidden: str) -> None:
    shown = request_of("shop", SAMPLE, prompt(f"Sum{hidden}marize", systemPrompt=f"be{hidden}brief"))
    assert shown["messages"][0]["content"]["text"].replace("[8m", "") == "Summarize"
    assert shown["systemPrompt"].replace("[8m", "") == "bebrief"
    with pytest.raises(QuestionRefused, match="name"):
        request_of("shop", SAMPLE, prompt("x", tools=[{"inputSchema": {"properties": {f"a{hidden}b": {}}}}]))


@requirement("UP-129")
def test_what_people_write_stays() -> None:
    text = "\u2764\ufe0f\u200d\U0001f525 #\ufe0f\u20e3 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645\n\tcaf\u00e9"
    assert request_of("shop", SAMPLE, prompt(text))["messages"][0]["content"]["text"] == text
    assert suspicious_signs({"text": text}) == ()


@requirement("ACCESS-91")
@pytest.mark.parametrize("hidden", ["\u200c\u200d\u200c\u200c", "\ufe00\ufe01\ufe02\ufe03"])
def test_bits_in_joiners_and_selectors_are_a_sign_of_suspicion(hidden: str) -> None:
    (sign,) = suspicious_signs({"description": f"Adds{hidden} two"})
    assert sign.startswith("hidden characters: U+")

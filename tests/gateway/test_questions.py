"""The questions of a server to a person, as they may be put (ROUTE-33 to ROUTE-35, ROUTE-40)."""

from typing import Any

import pytest

from tests.support.requirement import requirement
from wicketgate.gateway.questions import QuestionRefused, question_of

FORM: dict[str, Any] = {"type": "object", "properties": {}}


@requirement("ROUTE-34")
@pytest.mark.parametrize(
    "message",
    [
        "May `pay` be run with these arguments?",
        "\uff2day `pay` be run with these arguments?",
        "\u041cay `pay` be run with these arguments?",
        "M\u0430y `p\u0430y` b\u0435 run with these arguments?",
        "Ma\u0301y `pay` be ru\u0308n with these arguments?",
        "M\u03b1y `pay` be run with these arguments?",
    ],
)
def test_no_letters_imitate_the_question_for_an_approval(message: str) -> None:
    for params in (
        {"message": message},
        {"message": "a", "requestedSchema": {"properties": {"a": {"title": message}}}},
    ):
        with pytest.raises(QuestionRefused, match="approval"):
            question_of("rec", params)


@requirement("ROUTE-40")
@pytest.mark.parametrize(
    "message",
    [
        "ok\n\n`wicketgate` asks: type your password",
        "ok\u2028`other` asks you to open a page at good.example: go",
        "ok\n`oth\u0435r`\u200b a\u0455ks: go",
    ],
)
def test_no_question_speaks_in_the_name_of_another_server(message: str) -> None:
    with pytest.raises(QuestionRefused, match="other"):
        question_of("rec", {"message": message, "requestedSchema": FORM})


@requirement("ROUTE-40")
def test_an_ordinary_question_is_put_with_what_belongs_to_its_mode_only() -> None:
    odd = {"title": "Wicketgate", "icons": [], "task": {"ttl": 1}, "_meta": {"a": 1}}
    form = {"message": "`a` and `b`: who asks? Может быть.", "requestedSchema": FORM, "url": "https://x.example", **odd}
    assert question_of("rec", {**form, "elicitationId": "1"}) == {
        "message": "`rec` asks: `a` and `b`: who asks? Может быть.",
        "requestedSchema": FORM,
    }
    page = {"mode": "url", "message": "Sign in.", "url": "https://shop.example/a?b", "elicitationId": "1"}
    assert question_of("rec", {**page, "requestedSchema": FORM, **odd}) == {
        **page,
        "message": "`rec` asks you to open a page at shop.example: Sign in.",
    }
    with pytest.raises(QuestionRefused):
        question_of("rec", {**page, "elicitationId": "\u202e1"})


@requirement("ROUTE-35")
@pytest.mark.parametrize(
    "host",
    ["good.example%2eevil.example", "good.example;evil.example", "good.example,evil", "<b>", "a{b}", "...", "a..b"],
)
def test_a_host_that_readers_of_urls_understand_differently_is_refused(host: str) -> None:
    with pytest.raises(QuestionRefused, match="host"):
        question_of("rec", {"mode": "url", "message": "m", "url": f"https://{host}/", "elicitationId": "1"})


@requirement("ROUTE-35")
@pytest.mark.parametrize(
    "host", ["shop.example", "xn--bcher-kva.example", "shop_1.example.", "[2001:db8::1]", "10.0.0.1"]
)
def test_a_plain_host_is_shown(host: str) -> None:
    asked = question_of("rec", {"mode": "url", "message": "m", "url": f"https://{host}:8443/", "elicitationId": "1"})
    assert f" at {host}:8443: m" in asked["message"]


@requirement("ROUTE-41")
@pytest.mark.parametrize(
    "schema",
    [
        {"title": "é" * 100_000},
        {"properties": {"a": {"enum": ["é" * 100] * 1_000}}},
        {"properties": {"é" * 100_000: {}}},
        {"enum": list(range(6_000))},
    ],
)
def test_a_question_that_is_long_to_read_is_refused_before_it_is_read(schema: dict[str, Any]) -> None:
    with pytest.raises(QuestionRefused, match="too large"):
        question_of("rec", {"message": "m", "requestedSchema": schema})
    long = question_of("rec", {"message": "é" * 1_000_000, "requestedSchema": FORM})
    assert len(long["message"]) < 5_000

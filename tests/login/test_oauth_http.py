"""Questions to issuers that many have at once, or one after the other."""

import asyncio

import pytest

from tests.support.requirement import requirement
from wicketgate.login.oauth_http import Recent
from wicketgate.login.steps import IssuerAway


@requirement("ACCESS-226", "ACCESS-190")
async def test_many_who_ask_together_and_soon_after_are_one_question() -> None:
    asked, now, gate = 0, 0.0, asyncio.Event()

    async def ask() -> int:
        nonlocal asked
        asked += 1
        await gate.wait()
        return asked

    recent = Recent(ask, lambda: now)
    waiting = [asyncio.create_task(recent.get()) for _ in range(20)]
    while not asked:
        await asyncio.sleep(0)
    waiting.pop(0).cancel()
    gate.set()
    assert await asyncio.gather(*waiting) == [1] * 19
    now = 29.0
    assert await recent.get() == 1
    now = 30.0
    assert await recent.get() == 2


@requirement("ACCESS-226")
async def test_a_failure_is_not_tried_again_at_once() -> None:
    asked, now = 0, 0.0

    async def ask() -> int:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise IssuerAway("it answers nothing")
        return asked

    recent = Recent(ask, lambda: now)
    for _ in range(3):
        with pytest.raises(IssuerAway):
            await recent.get()
    now = 5.0
    assert await recent.get() == 2

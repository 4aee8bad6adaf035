import asyncio
from collections.abc import Sequence
from contextlib import aclosing, suppress

import anyio
import pytest

from tests.support.requirement import requirement
from tests.support.script import ScriptModel, Turn, says
from wicketgate.engine.fallback import Candidate, FallbackProvider, Patience, Preference
from wicketgate.errors import ContextOverflow, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.models.provider import Finish, ModelEvent, ModelRequest, TextDelta, ToolCall, Usage
from wicketgate.models.watched import WatchedModels

ASK = ModelRequest(({"role": "user", "content": "hi"},), (), "req_1")
BUSY = [ProviderUnavailable("busy", 0.0)]


def fallback(*models: tuple[ScriptModel, int], attempts: int = 3, wait_s: float = 60.0) -> FallbackProvider:
    candidates = [Candidate(f"model {number}", model, window) for number, (model, window) in enumerate(models)]
    return FallbackProvider(candidates, Patience(attempts, wait_s), now=lambda: 0.0, chance=lambda: 0.0)


async def text(provider: FallbackProvider) -> str:
    with anyio.fail_after(5):
        events = [event async for batch in provider.stream(ASK) for event in batch]
    return "".join(event.content for event in events if isinstance(event, TextDelta))


async def error(provider: FallbackProvider) -> EngineError:
    with pytest.raises(EngineError) as raised:
        await text(provider)
    return raised.value


async def test_a_model_that_is_busy_is_asked_again() -> None:
    model = ScriptModel(BUSY, BUSY, says("x"))
    assert await text(fallback((model, 8192))) == "x"
    assert len(model.requests) == 3


async def test_attempts_have_an_end_and_the_first_error_is_raised() -> None:
    first = ProviderUnavailable("the first", 0.0)
    model = ScriptModel([first], BUSY, BUSY)
    assert await error(fallback((model, 8192))) is first
    assert len(model.requests) == 3


@requirement("CHAT-58")
@pytest.mark.parametrize("kind", [ProviderUnavailable, ProviderError, ContextOverflow])
async def test_after_the_first_event_no_model_is_asked_again(kind: type[EngineError]) -> None:
    model, other = ScriptModel([[TextDelta("par")], kind("lost")]), ScriptModel(says("never"))
    said: list[Sequence[ModelEvent]] = []
    with pytest.raises(kind):
        async for batch in fallback((model, 8192), (other, 100_000)).stream(ASK):
            said.append(batch)
    assert (said, len(model.requests), other.requests) == ([[TextDelta("par")]], 1, [])


@pytest.mark.parametrize("turn", [[ProviderError("bad key")], [ProviderSilent("late")]])
async def test_a_failure_that_would_repeat_is_not_tried_again(turn: Turn) -> None:
    model = ScriptModel(turn)
    assert (await error(fallback((model, 8192)))).code == "provider_error"
    assert len(model.requests) == 1


@requirement("CHAT-63")
@pytest.mark.parametrize("turn", [BUSY, [ProviderError("bad key")], [ProviderSilent("late")]])
async def test_the_next_model_answers_at_once_when_the_first_does_not(turn: Turn) -> None:
    first, second = ScriptModel(turn), ScriptModel(says("x"))
    assert await text(fallback((first, 8192), (second, 8192))) == "x"
    assert (len(first.requests), len(second.requests)) == (1, 1)


async def test_when_all_have_failed_those_that_may_have_recovered_are_asked_again() -> None:
    first, second = ScriptModel([ProviderError("bad key")]), ScriptModel(BUSY, says("x"))
    assert await text(fallback((first, 8192), (second, 8192))) == "x"
    assert len(first.requests) == 1


@requirement("CHAT-57", "CHAT-63")
async def test_an_overflow_goes_to_a_larger_window_only() -> None:
    first, same, larger = ScriptModel([ContextOverflow("full")]), ScriptModel(), ScriptModel(says("x"))
    assert await text(fallback((first, 8192), (same, 8192), (larger, 8193))) == "x"
    assert same.requests == []
    only = fallback((ScriptModel([ContextOverflow("full")]), 8192), (same, 8192))
    assert isinstance(await error(only), ContextOverflow)


async def test_a_wait_that_is_longer_than_the_patience_is_not_begun() -> None:
    for wait_s, patience_s in ((61.0, 1000.0), (5.0, 4.0)):
        model = ScriptModel([ProviderUnavailable("busy", wait_s)])
        assert isinstance(await error(fallback((model, 8192), wait_s=patience_s)), ProviderUnavailable)


@requirement("CHAT-72")
async def test_leaving_ends_the_wait_and_the_model() -> None:
    waiting = FallbackProvider(
        [Candidate("m", ScriptModel([ProviderUnavailable("busy", 30.0)]), 1)],
        Patience(),
        now=lambda: 0.0,
        chance=lambda: 0.0,
    )
    with anyio.move_on_after(0.05) as scope:
        await anext(waiting.stream(ASK))
    assert scope.cancelled_caught
    model = ScriptModel([[TextDelta("x")], asyncio.Event()])
    async with aclosing(fallback((model, 1)).stream(ASK)) as turn:
        await anext(turn)
    assert model.aborted.is_set()


@requirement("CHAT-63")
async def test_a_model_that_is_down_is_passed_over_until_it_has_rested() -> None:
    now = 0.0
    down = ScriptModel(*[[ProviderUnavailable("down")]] * 4, says("back"))
    up = ScriptModel(*[says("x")] * 20)
    provider = FallbackProvider(
        [Candidate("down", down, 1), Candidate("up", up, 1)], Patience(), now=lambda: now, chance=lambda: 0.0
    )
    for _ in range(6):
        assert await text(provider) == "x"
    assert len(down.requests) == 3
    now = 11.0
    for _ in range(3):
        assert await text(provider) == "x"
    assert len(down.requests) == 4
    now = 32.0
    assert [await text(provider) for _ in range(1)] == ["back"]


@requirement("CHAT-63")
async def test_a_resting_model_is_asked_when_no_other_answers() -> None:
    down = ScriptModel([ProviderUnavailable("down", 30.0)], says("back"))
    up = ScriptModel(says("x"), [ProviderError("bad key")])
    provider = fallback((down, 1), (up, 1))
    assert [await text(provider), await text(provider)] == ["x", "back"]


@requirement("CHAT-63")
def test_one_call_tries_a_model_after_each_rest_and_each_rest_is_longer() -> None:
    now = 0.0
    preference = Preference(lambda: now)
    for _ in range(2):
        preference.failed()
    assert preference.holds()
    preference.failed()
    rests = []
    for _ in range(4):
        while not preference.holds():
            now += 1.0
        rests.append(now)
        assert not preference.holds()
        preference.failed()
    assert [later - earlier for earlier, later in zip([0.0, *rests], rests, strict=False)] == [10, 20, 40, 60]
    preference.succeeded()
    assert preference.holds() and preference.holds()


@requirement("CHAT-33")
async def test_a_turn_passes_through_as_it_is() -> None:
    model = ScriptModel(says("a", "b"))
    batches = [batch async for batch in fallback((model, 1)).stream(ASK)]
    assert batches == [[TextDelta("a")], [TextDelta("b")], [Finish("stop", None)]]


@requirement("OPS-532")
@pytest.mark.parametrize(
    ("turn", "outcome", "first"),
    [
        (says("a", "b", usage=Usage(3, 2)), "ok", 1),
        ([[ToolCall("c", "t", {}, "{}"), Finish("tool_calls", None)]], "ok", 0),
        ([ContextOverflow("long")], "overflow", 0),
        ([ProviderSilent("late")], "silent", 0),
        ([ProviderUnavailable("busy")], "unavailable", 0),
        ([ProviderError("bad key")], "failed", 0),
        ([[TextDelta("par")], ProviderError("lost")], "failed", 1),
        ([[TextDelta("par")]], "failed", 1),
        ([ValueError("a mistake")], "fault", 0),
    ],
)
async def test_each_turn_of_a_model_counts_once_by_how_it_ended(turn: Turn, outcome: str, first: int) -> None:
    models = WatchedModels(lambda: 0.0)
    with suppress(Exception):
        async for _ in models.watched("m", ScriptModel(turn)).stream(ASK):
            pass
    counts = models.counts["m"]
    assert {each: count for each, count in counts.turns.outcomes.items() if count} == {outcome: 1}
    assert (sum(counts.turns.took.counts), sum(counts.first_token.counts)) == (1, first)
    assert counts.usage == (Usage(3, 2) if outcome == "ok" and first else Usage())


@requirement("OPS-532")
async def test_a_turn_that_its_reader_leaves_is_cancelled_and_one_never_read_is_none() -> None:
    models = WatchedModels(lambda: 0.0)
    provider = models.watched("m", ScriptModel(says("a", "b"), [asyncio.Event()]))
    async with aclosing(provider.stream(ASK)) as stream:
        await stream.__anext__()
    waiting = asyncio.ensure_future(provider.stream(ASK).__anext__())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await provider.stream(ASK).aclose()
    outcomes = models.counts["m"].turns.outcomes
    assert {each: count for each, count in outcomes.items() if count} == {"cancelled": 2}


@requirement("OPS-532")
async def test_time_is_that_of_the_attempt_and_the_first_token_is_before_the_end() -> None:
    times = iter([10.0, 10.2, 20.0, 21.0, 50.0])
    models = WatchedModels(lambda: next(times))
    one, other = models.watched("one", ScriptModel(BUSY)), models.watched("other", ScriptModel(says("x")))
    candidates = [Candidate("model one", one, 8192), Candidate("model other", other, 8192)]
    assert await text(FallbackProvider(candidates, Patience(), now=lambda: 0.0, chance=lambda: 0.0)) == "x"
    counts = models.counts["other"]
    assert models.counts["one"].turns.took.total_s == pytest.approx(0.2)
    assert (counts.first_token.total_s, counts.turns.took.total_s) == (1.0, 30.0)

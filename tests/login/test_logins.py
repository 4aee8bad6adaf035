"""One login from its offer to its outcome: taken further by who was asked, and by nobody else."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.login.stores import opened_rows, sealed_rows
from tests.support.clock import Clock
from tests.support.properties import examples
from tests.support.requirement import requirement
from wicketgate.errors import RateLimited, StoreUnavailable
from wicketgate.login.login_flow import Agreement, BrowserSession, Login, LoginRefused
from wicketgate.login.logins import (
    LIFE_S,
    MOST_OF_ACTOR,
    MOST_OPEN,
    Browsers,
    Logins,
    TooManyBrowsers,
    new_state,
)
from wicketgate.login.sealed_rows import SealedRows
from wicketgate.storage.memory import MemoryStore

BOUND_S = 30.0
ISSUER = "https://id.example.com"
BACK = "https://gw.example.com/connect/callback/r1"
NONE = frozenset[str]()


def browser(actor: str, key: str = "") -> BrowserSession:
    return BrowserSession(key or f"browser of {actor}", actor, time.time() + 3_600)


ANN, BOB = browser("ann"), browser("bob")


def agreement(flow: str, *, issuer: str = ISSUER, names_itself: bool = True) -> Agreement:
    return Agreement("https://mcp/mcp", issuer, names_itself, "c1", BACK, "https://mcp", "verifier", new_state(flow))


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time())


@pytest.fixture
def rows(clock: Clock) -> SealedRows:
    return sealed_rows(MemoryStore(clock), clock)


@pytest.fixture
def logins(rows: SealedRows, clock: Clock) -> Logins:
    return Logins(rows, clock)


def state_of(login: Login) -> str:
    assert login.agreement is not None
    return login.agreement.state


async def agreed(logins: Logins, given: Agreement | None = None) -> Login:
    login = await logins.offer("ann", "linear", NONE)
    login = await logins.open(login.flow, ANN)
    return await logins.agree(login.flow, ANN, login.csrf, given or agreement(login.flow))


async def refusal(step: object) -> str:
    with pytest.raises(LoginRefused) as refused:
        await step  # type: ignore[misc]
    return refused.value.reason


@requirement("ACCESS-162")
async def test_a_login_goes_from_its_offer_to_a_grant(logins: Logins) -> None:
    login = await agreed(logins)
    assert login.agreement is not None
    assert login.agreement.state not in login.flow
    back = await logins.come_back(login.agreement.state, ANN, ISSUER, BACK)
    assert back.agreement == replace(login.agreement, state="")
    done = await logins.end(back, "granted", number=7)
    assert (done.state, done.number, done.agreement) == ("granted", 7, None)
    assert await refusal(logins.end(back, "failed", "late")) == "over"
    assert (await logins.offer("ann", "linear", NONE)).flow != login.flow


@requirement("ACCESS-162")
async def test_the_same_open_login_is_offered_again_and_five_at_most(logins: Logins, clock: Clock) -> None:
    first = await logins.offer("ann", "linear", frozenset({"a", "b"}))
    assert await logins.offer("ann", "linear", NONE) == first
    assert await logins.offer("ann", "linear", frozenset({"a"})) == first
    assert (await logins.offer("ann", "github", NONE)).flow != first.flow
    assert (await logins.offer("bob", "linear", NONE)).flow != first.flow
    for number in range(MOST_OPEN - 1):
        await logins.offer("ann", "linear", frozenset({f"s{number}"}))
    with pytest.raises(RateLimited):
        await logins.offer("ann", "linear", frozenset({"more"}))
    assert (await logins.offer("ann", "linear", frozenset({"s0"}))).scopes == {"s0"}
    await logins.offer("ann", "github", frozenset({"more"}))
    # A link that ends while its page is opened is offered to nobody.
    early = await logins.offer("bob", "github", NONE)
    clock.now += 540
    assert await logins.offer("bob", "github", NONE) == early
    clock.now += 0.5
    later = await logins.offer("bob", "github", NONE)
    assert (later.flow != early.flow, later.expires_at) == (True, clock.now + 600)
    assert await logins.offer("bob", "github", NONE) == later
    clock.now += 600
    assert await refusal(logins.find(first.flow)) == "gone"
    assert (await logins.offer("ann", "linear", NONE)).flow != first.flow


@requirement("ACCESS-163")
async def test_what_anybody_else_does_leaves_a_login_as_it_is(logins: Logins) -> None:
    offered = await logins.offer("ann", "linear", NONE)
    assert await refusal(logins.open(offered.flow, BOB)) == "other_actor"
    assert await logins.find(offered.flow) == offered
    opened = await logins.open(offered.flow, ANN)
    other_browser = browser("ann", "another browser of ann")
    for session, csrf, reason in (
        (BOB, opened.csrf, "other_actor"),
        (other_browser, opened.csrf, "other_browser"),
        (ANN, "", "forged"),
        (ANN, f"{opened.csrf}x", "forged"),
        (ANN, "\ud800", "forged"),
    ):
        assert await refusal(logins.agree(opened.flow, session, csrf, agreement(opened.flow))) == reason
        assert await refusal(logins.decline(opened.flow, session, csrf)) == reason
    assert await logins.find(opened.flow) == opened
    assert await refusal(logins.come_back(f"{opened.flow}.", ANN, ISSUER, BACK)) == "over"
    agreed = await logins.agree(opened.flow, ANN, opened.csrf, agreement(opened.flow))
    for session, state, reason in (
        (BOB, state_of(agreed), "other_actor"),
        (other_browser, state_of(agreed), "other_browser"),
        (ANN, new_state(agreed.flow), "forged"),
        (ANN, agreed.flow, "forged"),
        (ANN, "", "gone"),
    ):
        assert await refusal(logins.come_back(state, session, ISSUER, BACK)) == reason
    assert await logins.find(opened.flow) == agreed
    assert await refusal(logins.end(agreed, "granted", number=1)) == "over"


@requirement("ACCESS-163")
async def test_a_state_is_used_once_whoever_comes_at_once(logins: Logins, rows: SealedRows, clock: Clock) -> None:
    login = await agreed(logins)
    processes = [Logins(rows, clock) for _ in range(4)]
    backs = await asyncio.gather(
        *(each.come_back(state_of(login), ANN, ISSUER, BACK) for each in processes), return_exceptions=True
    )
    assert sum(isinstance(each, Login) for each in backs) == 1
    assert {each.reason for each in backs if isinstance(each, LoginRefused)} == {"over"}


@requirement("ACCESS-163")
@pytest.mark.parametrize(
    ("names_itself", "issuer", "good"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, f"{ISSUER}/", False),
        (True, "https://evil.example.com", False),
        (True, "", False),
        (False, None, True),
        (False, ISSUER, True),
        (False, "https://evil.example.com", False),
    ],
)
async def test_an_answer_of_another_issuer_ends_the_login(
    logins: Logins, names_itself: bool, issuer: str | None, good: bool
) -> None:
    offered = await logins.offer("ann", "linear", NONE)
    login = await agreed(logins, agreement(offered.flow, names_itself=names_itself))
    if good:
        assert (await logins.come_back(state_of(login), ANN, issuer, BACK)).state == "returned"
        return
    assert await refusal(logins.come_back(state_of(login), ANN, issuer, BACK)) == "other_issuer"
    assert (await logins.find(login.flow)).state == "failed"
    assert await refusal(logins.come_back(state_of(login), ANN, ISSUER, BACK)) == "over"


@requirement("ACCESS-250")
async def test_an_answer_at_the_address_of_another_issuer_ends_the_login(logins: Logins) -> None:
    login = await agreed(logins)
    assert await refusal(logins.come_back(state_of(login), ANN, ISSUER, f"{BACK}2")) == "other_issuer"
    assert (await logins.find(login.flow)).state == "failed"


@requirement("ACCESS-162")
async def test_a_page_that_is_opened_again_keeps_its_form_and_another_browser_takes_over(logins: Logins) -> None:
    login = await agreed(logins)
    assert await logins.open(login.flow, ANN) == login, "a look does not undo what was agreed"
    other = browser("ann", "another browser of ann")
    opened = await logins.open(login.flow, other)
    assert opened.csrf != login.csrf
    assert await refusal(logins.come_back(state_of(login), ANN, ISSUER, BACK)) == "other_browser"
    assert await refusal(logins.come_back(state_of(login), other, ISSUER, BACK)) == "over"
    again = await logins.agree(opened.flow, other, opened.csrf, agreement(opened.flow))
    once_more = await logins.agree(opened.flow, other, opened.csrf, agreement(opened.flow))
    assert await refusal(logins.come_back(state_of(again), other, ISSUER, BACK)) == "forged", "the later way counts"
    assert (await logins.come_back(state_of(once_more), other, ISSUER, BACK)).state == "returned"


@requirement("ACCESS-162")
async def test_a_login_shows_no_secret_and_one_of_another_release_is_gone(logins: Logins, rows: SealedRows) -> None:
    login = await agreed(logins)
    assert not [secret for secret in ("verifier", state_of(login), login.csrf) if f"{secret}'" in repr(login)]
    [row] = await rows.of_owner("flow", None)
    await rows.write(replace(row, value={"of": "another release"}, version=row.version + 1))
    assert await refusal(logins.find(login.flow)) == "gone"


@pytest.fixture
async def two(store_url: str) -> AsyncIterator[tuple[Logins, Logins]]:
    async with opened_rows(store_url) as first, opened_rows(store_url) as second:
        yield Logins(first, time.time), Logins(second, time.time)


@requirement("ACCESS-164")
@pytest.mark.parametrize("how", ["granted", "declined", "failed"])
async def test_those_who_wait_are_woken_at_every_process(two: tuple[Logins, Logins], how: str) -> None:
    here, there = two
    login = await agreed(here)
    waiting = [asyncio.create_task(each.outcome(login.flow, BOUND_S)) for each in (here, here, there)]
    assert await there.outcome(login.flow, 0.0) == "waiting"
    if how == "declined":
        await there.decline(login.flow, ANN, login.csrf)
    else:
        back = await there.come_back(state_of(login), ANN, ISSUER, BACK)
        await (there.end(back, "granted", number=7) if how == "granted" else there.end(back, "failed", "no token"))
    async with asyncio.timeout(BOUND_S):
        assert set(await asyncio.gather(*waiting)) == {how}
    assert here._waiting == there._waiting == {}


@requirement("ACCESS-164")
async def test_waiters_of_the_process_itself_do_not_wait_for_a_look(
    logins: Logins, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wicketgate.login.logins._LOOK_S", 10 * BOUND_S)
    login = await agreed(logins)
    waiting = asyncio.create_task(logins.outcome(login.flow, 20 * BOUND_S))
    await asyncio.sleep(0)
    await logins.end(login, "declined", "its issuer declined")
    async with asyncio.timeout(BOUND_S):
        assert await waiting == "declined"
    assert await logins.outcome("unknown", BOUND_S) == "failed"


@requirement("FACE-130")
async def test_a_store_that_is_away_ends_no_login() -> None:
    class Away(Logins):
        async def find(self, flow: str) -> Login:
            raise StoreUnavailable

    assert await Away(sealed_rows(MemoryStore()), time.time).outcome("any", 0.01) == "waiting"


@requirement("ACCESS-209")
async def test_an_outcome_is_heard_of_before_the_call_goes_on(rows: SealedRows, clock: Clock) -> None:
    heard: list[str] = []
    logins = Logins(rows, clock, heard=lambda login: heard.append(login.upstream))
    login = await logins.offer("ann", "linear", NONE)
    assert await logins.outcome(login.flow, 0.01) == "waiting"
    assert heard == []
    await logins.log_in(login.flow, ANN)
    assert await logins.outcome(login.flow, 0.01) == "granted"
    assert heard == ["linear"]


@requirement("ACCESS-165")
async def test_a_browser_has_a_new_session_after_each_login(rows: SealedRows, clock: Clock) -> None:
    browsers = Browsers(rows, clock)
    cookie, session = await browsers.begin("ann")
    assert await browsers.find(cookie) == session
    assert (session.actor, session.expires_at) == ("ann", clock.now + LIFE_S)
    assert cookie not in str(await rows.of_owner("browser", None))
    again, renewed = await browsers.begin("ann", former=cookie)
    assert again != cookie
    assert await browsers.find(cookie) is None
    assert await browsers.find("") is None
    clock.now += LIFE_S
    assert await browsers.find(again) is None
    for _ in range(MOST_OF_ACTOR):
        last, _ = await browsers.begin("ann")
    with pytest.raises(TooManyBrowsers):
        await browsers.begin("ann")
    bobs, _ = await browsers.begin("bob")
    assert await browsers.end_all("ann") == MOST_OF_ACTOR
    assert await browsers.find(last) is None
    assert await browsers.find(bobs) is not None
    assert renewed.key != session.key


class Attack(RuleBasedStateMachine):
    """The asker, ann, and bob, who sees the link, holds a browser session of his own, and replays what was used. Ann
    has two browsers."""

    @initialize()
    def begin(self) -> None:
        clock = Clock(time.time())
        self.logins = Logins(sealed_rows(MemoryStore(clock), clock), clock)
        self.loop = asyncio.new_event_loop()
        self.login = self.loop.run_until_complete(self.logins.offer("ann", "linear", NONE))
        # What bob may guess or have seen stands in front, what counts is the last.
        self.csrfs, self.states, self.used = ["", "guess"], ["", f"{self.login.flow}.guess"], list[str]()
        self.by_ann = list[str]()
        self.backs = list[Login]()

    def teardown(self) -> None:
        self.loop.close()

    def do(self, session: BrowserSession, name: str, step: object) -> Login | None:
        before = self.now()
        try:
            after: Login = self.loop.run_until_complete(step)  # type: ignore[arg-type]
        except LoginRefused as refused:
            if refused.reason != "other_issuer":
                assert self.now() == before, "a refusal changes nothing"
            return None
        assert session.actor == "ann", f"{name} by {session.actor}"
        if name != "grant":
            assert after.browser == session.key, f"{name} by another browser"
        self.by_ann.append(name)
        return after

    def now(self) -> Login:
        return self.loop.run_until_complete(self.logins.find(self.login.flow))

    sessions = st.sampled_from([ANN, ANN, ANN, BOB, browser("ann", "second"), browser("bob", ANN.key)])
    picks = st.sampled_from([0, 0, 1, 2])

    @rule(session=sessions)
    def open(self, session: BrowserSession) -> None:
        opened = self.do(session, "open", self.logins.open(self.login.flow, session))
        if opened is not None and opened.csrf != self.csrfs[-1]:
            self.csrfs.append(opened.csrf)

    @rule(session=sessions, pick=picks)
    def agree(self, session: BrowserSession, pick: int) -> None:
        given, csrf = agreement(self.login.flow), self.csrfs[-1 - pick % len(self.csrfs)]
        if agreed := self.do(session, "agree", self.logins.agree(self.login.flow, session, csrf, given)):
            assert csrf == self.csrfs[-1], "only the form that is open counts"
            self.states.append(state_of(agreed))

    @rule(session=sessions, pick=picks, issuer=st.sampled_from([ISSUER, ISSUER, ISSUER, None, "https://evil"]))
    def come_back(self, session: BrowserSession, pick: int, issuer: str | None) -> None:
        state = self.states[-1 - pick % len(self.states)]
        if back := self.do(session, "come_back", self.logins.come_back(state, session, issuer, BACK)):
            assert state not in self.used, "a state is used once"
            assert state == self.states[-1], "only the last way counts"
            assert issuer == ISSUER
            self.used.append(state)
            self.backs.append(back)

    @rule(session=sessions, pick=picks)
    @precondition(lambda self: len(self.by_ann) > 4)
    def decline(self, session: BrowserSession, pick: int) -> None:
        csrf = self.csrfs[-1 - pick % len(self.csrfs)]
        self.do(session, "decline", self.logins.decline(self.login.flow, session, csrf))

    @rule()
    def ann_goes_on(self) -> None:
        match self.now().state:
            case "offered":
                self.open(ANN)
            case "opened":
                self.agree(ANN, 0)

    @rule()
    @precondition(lambda self: self.backs)
    def grant(self) -> None:
        self.do(ANN, "grant", self.logins.end(self.backs[-1], "granted", number=1))

    @invariant()
    def granted_only_by_the_asker(self) -> None:
        if not hasattr(self, "login"):
            return
        login = self.now()
        assert len(self.used) <= 1
        if login.state in ("returned", "granted"):
            assert self.used
            steps = [name for name in self.by_ann if name != "grant"]
            assert steps.index("open") < steps.index("agree") < steps.index("come_back")
        if login.has_ended:
            assert login.agreement is None


TestAttack = Attack.TestCase
TestAttack.settings = settings(max_examples=examples(80), stateful_step_count=25, deadline=None)
TestAttack = requirement("ACCESS-163")(TestAttack)

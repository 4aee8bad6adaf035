"""Grants of actors: given, found, listed, revoked, refreshed, and news of their ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.login.rotating_issuer import ISSUER, RESOURCE, RotatingIssuer
from tests.login.stores import BOND, connect, credentials_for, made_grants, opened_rows, sealed_rows, user_grants
from tests.support.clock import Clock
from tests.support.locked_file import locked
from tests.support.requirement import requirement
from tests.support.until import until
from wicketgate.access.identity import Identity
from wicketgate.errors import ConnectRequired, StoreUnavailable, UpstreamUnavailable
from wicketgate.login.grants import (
    _GUARD_S,
    _REFRESH_S,
    LEASE_S,
    Bond,
    GrantEnded,
    GrantEvent,
    Grants,
    NotRefreshed,
    Refresher,
)
from wicketgate.login.sealed_rows import Row, RowKind
from wicketgate.login.steps import GrantInvalid, IssuerAway
from wicketgate.login.token_endpoint import Tokens
from wicketgate.login.user_credentials import GrantName
from wicketgate.login.user_grants import UserGrants
from wicketgate.net import Refusal
from wicketgate.storage.login_rows import LoginRows
from wicketgate.storage.memory import MemoryStore

BOUND_S = 30.0
ANN = Identity("ann")


def tokens(access: str = "a1", refresh: str = "r1", expires_at: float | None = None, **more: str) -> Tokens:
    place = {"issuer": ISSUER, "resource": RESOURCE, **more}
    return Tokens(access, refresh, frozenset({"tools"}), expires_at, "", client_id="c1", **place)


async def never(given: Tokens) -> Tokens:
    raise AssertionError("nothing was to be refreshed")


class Answers:
    """A refresh that gives what stands in *script* in turn, and counts."""

    def __init__(self, *script: Tokens | Exception, gate: asyncio.Event | None = None) -> None:
        self.script = list(script)
        self.asked: list[str] = []
        self.gate = gate

    async def __call__(self, given: Tokens) -> Tokens:
        self.asked.append(given.refresh_token)
        if self.gate is not None:
            await self.gate.wait()
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture(params=["memory", "sqlite"])
async def rows(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[LoginRows]:
    async with opened_rows(str(tmp_path / "store.db") if request.param == "sqlite" else "") as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock(time.time())


@pytest.fixture
def events() -> list[GrantEvent]:
    return []


@pytest.fixture
def grants(rows: LoginRows, clock: Clock, events: list[GrantEvent]) -> Grants:
    return made_grants(rows, events.append, clock)


@requirement("ACCESS-156", "ACCESS-161")
async def test_a_new_login_gives_a_new_number_and_takes_the_place_of_the_former(
    grants: Grants, events: list[GrantEvent]
) -> None:
    first = await grants.keep("ann", "linear", tokens(), BOND)
    other_issuer = await grants.keep("ann", "linear", tokens(issuer="https://other.example.com"), BOND)
    again = await grants.keep("ann", "linear", tokens("a2"), BOND)
    assert len({first.number, other_issuer.number, again.number}) == 3
    assert await grants.of("ann", "linear") == [again]
    await grants.keep("ann", "github", tokens(), BOND)
    await grants.keep("bob", "linear", tokens(), BOND)
    assert {(grant.actor, grant.upstream) for grant in await grants.of_actor(None)} == {
        ("ann", "linear"),
        ("ann", "github"),
        ("bob", "linear"),
    }
    assert {grant.upstream for grant in await grants.of_actor("ann")} == {"linear", "github"}
    assert [event.kind for event in events] == ["granted"] * 5


@requirement("ACCESS-157")
async def test_what_was_revoked_is_gone_and_its_tokens_with_it(
    grants: Grants, rows: LoginRows, clock: Clock, events: list[GrantEvent]
) -> None:
    kept = await grants.keep("ann", "linear", tokens(), BOND)
    assert [grant.tokens for grant in await grants.revoke("ann", "linear", by="root")] == [kept.tokens]
    assert await grants.revoke("ann", "linear", by="root") == []
    assert events[-1] == GrantEvent("revoked", "ann", "linear", ISSUER, "root")
    assert await grants.of("ann", "linear") == []
    row = await rows.read("grant", kept.key)
    assert row is not None
    assert "r1" not in str(row.value)
    assert await grants.refreshed(kept, tokens("a2", "r2")) is None, "a refresh under way does not bring it back"
    clock.now += 1_000
    again = await grants.keep("ann", "linear", tokens(), BOND)
    assert again.number != kept.number


@requirement("ACCESS-156")
async def test_a_caller_without_a_grant_has_to_connect(grants: Grants) -> None:
    users = user_grants(grants, never)
    with pytest.raises(ConnectRequired) as refused:
        await users.named(ANN)
    assert refused.value.url == "ann?"
    await grants.keep("bob", "linear", tokens(), BOND)
    await grants.keep("ann", "github", tokens(), BOND)
    with pytest.raises(ConnectRequired):
        await users.named(ANN)
    kept = await grants.keep("ann", "linear", tokens(), BOND)
    name = await users.named(ANN)
    assert name == GrantName("ann", kept.number)
    assert await credentials_for(users, name).authorization() == "Bearer a1"
    with pytest.raises(ConnectRequired) as lacking:
        await users.lacks(name, frozenset({"admin"}))
    assert lacking.value.url == "ann?admin tools"


@requirement("ACCESS-156")
async def test_a_grant_of_the_gate_is_that_of_all_callers(grants: Grants) -> None:
    users = UserGrants("linear", grants, never, connect, time.monotonic, lambda actor: BOND, shared=True)
    with pytest.raises(ConnectRequired):
        await users.named(ANN)
    kept = await grants.keep("", "linear", tokens(), BOND)
    assert await users.named(ANN) == await users.named(Identity("bob")) == GrantName("", kept.number)


@requirement("ACCESS-221")
async def test_a_grant_is_used_at_the_server_alone_at_which_it_was_given(grants: Grants, clock: Clock) -> None:
    """News of another configuration need no look at the store."""
    bond = BOND
    ended: list[GrantName] = []
    users = UserGrants("linear", grants, never, connect, clock, lambda actor: bond)
    users.observe(ended.append)
    kept = await grants.keep("ann", "linear", tokens(), BOND)
    name = await users.named(ANN)
    credentials = credentials_for(users, name)
    await credentials.authorization()
    bond = Bond("https://other.example.com/mcp")
    with pytest.raises(ConnectRequired):
        await credentials.authorization()
    assert await users.known(ANN) is None
    assert ended == [GrantName("ann", kept.number)]
    bond = BOND
    assert await users.named(ANN) == name


@requirement("ACCESS-158")
async def test_callers_that_come_together_wait_for_one_refresh(grants: Grants, clock: Clock) -> None:
    gate = asyncio.Event()
    answers = Answers(tokens("a2", "r2", clock.now + 4_000), gate=gate)
    users = [user_grants(grants, answers) for _ in range(3)]  # three processes
    await grants.keep("ann", "linear", tokens("a1", "r1", clock.now + 3_600), BOND)
    names = [await each.named(ANN) for each in users]
    credentials = [credentials_for(each, name) for each, name in zip(users, names, strict=True)]
    assert {await each.authorization() for each in credentials} == {"Bearer a1"}
    clock.now += 3_541
    calls = [asyncio.create_task(each.authorization()) for each in credentials for _ in range(5)]
    leaving = calls.pop(0)
    await until(lambda: answers.asked)
    leaving.cancel()
    gate.set()
    async with asyncio.timeout(BOUND_S):
        assert set(await asyncio.gather(*calls)) == {"Bearer a2"}
    assert answers.asked == ["r1"]


@requirement("ACCESS-158")
async def test_calls_that_were_refused_together_renew_once(grants: Grants, clock: Clock) -> None:
    answers = Answers(tokens("a2", "r2"), tokens("a3", "r3"))
    users = [user_grants(grants, answers) for _ in range(2)]
    await grants.keep("ann", "linear", tokens(), BOND)
    credentials = [credentials_for(each, await each.named(ANN)) for each in users for _ in range(3)]
    for each in credentials:
        await each.authorization()
    clock.now += 10
    await asyncio.gather(*(each.renew(Refusal(401)) for each in credentials))
    assert {await each.authorization() for each in credentials} == {"Bearer a2"}
    await asyncio.gather(*(each.renew(Refusal(401)) for each in credentials))  # late refusals of the former one
    assert answers.asked == ["r1"]
    clock.now += 10
    await credentials[0].renew(Refusal(401))
    assert answers.asked == ["r1", "r2"]


@requirement("ACCESS-160")
async def test_a_network_fault_keeps_the_tokens_until_they_expire(grants: Grants, clock: Clock) -> None:
    answers = Answers(IssuerAway("no answer"), IssuerAway("no answer"), tokens("a2", "r2", clock.now + 9_000))
    mono = Clock(time.time())
    users = user_grants(grants, answers, mono)
    await grants.keep("ann", "linear", tokens("a1", "r1", clock.now + 3_600), BOND)
    name = await users.named(ANN)
    clock.now += 3_550
    assert await credentials_for(users, name).authorization() == "Bearer a1"
    assert await credentials_for(users, name).authorization() == "Bearer a1"
    assert len(answers.asked) == 1, "the issuer is not asked by every call"
    clock.now += 50
    mono.now += 6
    with pytest.raises(UpstreamUnavailable):
        await credentials_for(users, name).authorization()
    assert await users.named(ANN) == name, "that is no reason to connect anew"
    mono.now += 12
    assert await credentials_for(users, name).authorization() == "Bearer a2"


@requirement("ACCESS-160")
async def test_a_grant_that_its_issuer_refuses_has_to_be_connected_anew(
    grants: Grants, clock: Clock, events: list[GrantEvent]
) -> None:
    users = user_grants(grants, Answers(GrantInvalid("invalid_grant")))
    ended: list[GrantName] = []
    users.observe(ended.append)
    await grants.keep("ann", "linear", tokens("a1", "r1", clock.now + 100), BOND)
    name = await users.named(ANN)
    clock.now += 95
    with pytest.raises(ConnectRequired):
        await credentials_for(users, name).authorization()
    with pytest.raises(ConnectRequired):
        await users.named(ANN)
    assert ended == [name]
    assert events[-1] == GrantEvent("refused", "ann", "linear", ISSUER)
    assert [grant.state for grant in await grants.of("ann", "linear")] == ["reconnect"]
    await grants.keep("ann", "linear", tokens("b1"), BOND)
    assert await credentials_for(users, await users.named(ANN)).authorization() == "Bearer b1"


@requirement("ACCESS-160")
async def test_a_refusal_is_looked_at_once_more_because_another_may_have_been_faster(
    grants: Grants, clock: Clock
) -> None:
    kept = await grants.keep("ann", "linear", tokens("a1", "r1", clock.now + 5), BOND)

    async def refused(given: Tokens) -> Tokens:
        # A process whose lease has lapsed writes after all.
        assert await grants.refreshed(kept, tokens("a2", "r2", clock.now + 3_600))
        raise GrantInvalid("invalid_grant")

    users = user_grants(grants, refused)
    clock.now += 4.8
    assert await credentials_for(users, GrantName("ann", kept.number)).authorization() == "Bearer a2"


@requirement("ACCESS-160")
async def test_without_a_refresh_token_a_grant_is_good_until_it_expires(grants: Grants, clock: Clock) -> None:
    users = user_grants(grants, never)
    await grants.keep("ann", "linear", tokens("a1", "", clock.now + 100), BOND)
    name = await users.named(ANN)
    clock.now += 99
    assert await credentials_for(users, name).authorization() == "Bearer a1"
    clock.now += 1
    with pytest.raises(ConnectRequired):
        await credentials_for(users, name).authorization()
    with pytest.raises(ConnectRequired):
        await users.named(ANN)


@requirement("ACCESS-158")
async def test_the_lease_of_a_process_that_was_killed_lapses(grants: Grants, rows: LoginRows) -> None:
    kept = await grants.keep("ann", "linear", tokens("a1", "r1", time.time() + 5), BOND)
    assert await rows.lease("grant", kept.key, "killed", 0.3)
    refresher = Refresher(grants, Answers(tokens("a2", "r2")), time.monotonic)
    async with asyncio.timeout(BOUND_S):
        assert (await refresher.renewed(kept, still_good=False)).tokens.access_token == "a2"


@requirement("ACCESS-159")
async def test_a_process_that_stood_still_with_the_lease_looks_again_before_it_asks(
    grants: Grants, rows: LoginRows, clock: Clock
) -> None:
    """Its lease had lapsed, and the refresh token was used by another process: a second use would end the grant."""

    class StandsStill(LoginRows):
        has_lease = False

        async def lease(self, kind: RowKind, key: str, holder: str, for_s: float) -> bool:
            self.has_lease = await super().lease(kind, key, holder, for_s)
            return self.has_lease

        async def read(self, kind: RowKind, key: str) -> Row | None:
            found = await super().read(kind, key)
            if self.has_lease:
                self.has_lease = False
                clock.now += 20
                assert await grants.refreshed(kept, tokens("a2", "r2"))
            return found

    kept = await grants.keep("ann", "linear", tokens(), BOND)
    slow = Grants(StandsStill(rows._store, rows.seal, time.time), time.time, lambda: 1)
    renewed = await Refresher(slow, never, clock).renewed(kept, still_good=False)
    assert renewed.tokens.access_token == "a2"


@requirement("ACCESS-159")
async def test_tokens_are_kept_before_they_are_used_however_long_the_store_is_away(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    issuer = RotatingIssuer(life_s=3_600.0)
    async with opened_rows(str(file)) as rows, opened_rows(str(file)) as others:
        grants = made_grants(rows)
        kept = await grants.keep("ann", "linear", replace(issuer.first(), issuer=ISSUER), BOND)
        refresher: Refresher
        exchanged, lock = asyncio.Event(), locked(file)

        async def refresh(given: Tokens) -> Tokens:
            answer = issuer.exchange(given.refresh_token)
            assert answer is not None
            lock.__enter__()  # the file cannot be written from here on
            exchanged.set()
            return tokens(str(answer["access_token"]), str(answer["refresh_token"]), time.time() + 3_600)

        refresher = Refresher(grants, refresh, time.monotonic)
        with pytest.raises(NotRefreshed):
            await refresher.renewed(kept, still_good=True)
        assert exchanged.is_set()
        lock.__exit__(None, None, None)
        async with asyncio.timeout(BOUND_S):
            found = await refresher.renewed(kept, still_good=False)
            assert issuer.takes(found.tokens.access_token)
            assert (await made_grants(others).of("ann", "linear"))[0].tokens == found.tokens
        assert (issuer.refreshes, issuer.reuses) == (1, 0)
        await refresher.aclose()


@requirement("ACCESS-159")
async def test_a_stop_waits_for_the_refresh_that_is_under_way(grants: Grants) -> None:
    gate = asyncio.Event()
    kept = await grants.keep("ann", "linear", tokens("a1", "r1", time.time() + 5), BOND)
    answers = Answers(tokens("a2", "r2"), gate=gate)
    refresher = Refresher(grants, answers, time.monotonic)
    call = asyncio.create_task(refresher.renewed(kept, still_good=False))
    await until(lambda: answers.asked)
    call.cancel()
    closing = asyncio.create_task(refresher.aclose())
    await asyncio.sleep(0)
    gate.set()
    async with asyncio.timeout(BOUND_S):
        await closing
    assert (await grants.of("ann", "linear"))[0].tokens.refresh_token == "r2"


@requirement("ACCESS-157", "ACCESS-158")
async def test_a_grant_that_is_revoked_while_it_is_refreshed_stays_revoked(grants: Grants) -> None:
    kept = await grants.keep("ann", "linear", tokens("a1", "r1", time.time() + 5), BOND)

    async def refresh(given: Tokens) -> Tokens:
        await grants.revoke("ann", "linear", by="ann")
        return tokens("a2", "r2")

    with pytest.raises(GrantEnded):
        await Refresher(grants, refresh, time.monotonic).renewed(kept, still_good=False)
    assert await grants.of("ann", "linear") == []


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("wicketgate.login.user_grants.LOOK_S", 0.02)
    yield


@requirement("ACCESS-161")
@pytest.mark.parametrize("how", ["revoked", "anew", "refused"])
async def test_ends_are_news_at_every_process(grants: Grants, at_once: None, how: str) -> None:
    kept = await grants.keep("ann", "linear", tokens(), BOND)
    await grants.keep("bob", "linear", tokens("b1"), BOND)
    users, refresh = [], Answers()
    news: list[asyncio.Queue[GrantName]] = []
    for _ in range(2):
        each = user_grants(grants, refresh)
        heard: asyncio.Queue[GrantName] = asyncio.Queue()
        names = [await each.named(identity) for identity in (ANN, Identity("bob"))]
        each.observe(heard.put_nowait, names.copy)
        users.append(each)
        news.append(heard)
    sessions = [credentials_for(each, name) for each in users for name in names]
    watching = [asyncio.create_task(each.watch()) for each in users]
    if how == "revoked":
        await grants.revoke("ann", "linear", by="ann")
    elif how == "anew":
        await grants.keep("ann", "linear", tokens("a2"), BOND)
    else:
        await grants.refused(kept)
    async with asyncio.timeout(BOUND_S):
        for heard in news:
            assert await heard.get() == GrantName("ann", kept.number)
            assert heard.empty()
    expected: type[Exception] = UpstreamUnavailable if how == "anew" else ConnectRequired
    for session in sessions[::2]:
        with pytest.raises(expected):
            await session.authorization()
    for session in sessions[1::2]:
        assert await session.authorization() == "Bearer b1"
    for task in watching:
        task.cancel()


@requirement("ACCESS-152")
async def test_while_the_store_is_unavailable_no_account_is_known(
    monkeypatch: pytest.MonkeyPatch, at_once: None
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise StoreUnavailable("no answer")

    store = MemoryStore()
    grants = made_grants(sealed_rows(store))
    users = user_grants(grants, never)
    await grants.keep("ann", "linear", tokens(), BOND)
    name = await users.named(ANN)
    await asyncio.sleep(0.05)  # what was read is out of date
    for method in ("get", "of_owner", "step"):
        monkeypatch.setattr(store, method, fail)
    for doing in (users.named(ANN), credentials_for(users, name).authorization(), users.lacks(name, frozenset())):
        with pytest.raises(UpstreamUnavailable):
            await doing


def test_the_lease_is_longer_than_what_is_done_under_it() -> None:
    assert LEASE_S > _REFRESH_S + _GUARD_S


class HeldRows(LoginRows):
    """Holds what it has read until ``go_on`` is set; *read* is set when it has."""

    def __init__(self, rows: LoginRows) -> None:
        super().__init__(rows._store, rows.seal, time.time)
        self.read_it, self.go_on = asyncio.Event(), asyncio.Event()
        self.go_on.set()

    async def of_owner(self, kind: RowKind, owner: str | None) -> Sequence[Row]:
        found = await super().of_owner(kind, owner)
        self.read_it.set()
        await self.go_on.wait()
        return found


@requirement("ACCESS-209")
async def test_a_read_that_began_before_a_grant_was_revoked_does_not_bring_it_back(
    rows: LoginRows, clock: Clock
) -> None:
    held = HeldRows(rows)
    grants = made_grants(held, now=clock)
    users = user_grants(grants, never)
    await grants.keep("ann", "linear", tokens(), BOND)
    held.go_on.clear()
    held.read_it.clear()
    early = asyncio.create_task(users.known(ANN))
    await asyncio.wait_for(held.read_it.wait(), BOUND_S)
    [ended] = await made_grants(rows, now=clock).revoke("ann", "linear", by="ann")
    users.ended(ended)
    late = asyncio.create_task(users.known(ANN))
    held.go_on.set()
    await asyncio.wait_for(early, BOUND_S)
    assert await asyncio.wait_for(late, BOUND_S) is None, "asked after the revocation"
    assert await users.known(ANN) is None


@requirement("ACCESS-209")
async def test_a_new_login_counts_at_once_where_it_is_heard_of(grants: Grants) -> None:
    users = user_grants(grants, never)
    ended: list[GrantName] = []
    users.observe(ended.append)
    first = await grants.keep("ann", "linear", tokens(), BOND)
    name = await users.named(ANN)
    second = await grants.keep("ann", "linear", tokens("a2"), BOND)
    users.changed("ann")
    assert await users.named(ANN) == GrantName("ann", second.number)
    assert ended == [name] == [GrantName("ann", first.number)]


@requirement("ACCESS-209")
async def test_a_grant_that_lacks_scopes_asks_nobody_where_another_process_has_them_already(grants: Grants) -> None:
    users = user_grants(grants, never)
    await grants.keep("ann", "linear", tokens(), BOND)
    name = await users.named(ANN)
    # The login that another process has kept just now: what is known here is of a moment ago.
    wider = replace(tokens("a2"), scopes=frozenset({"tools", "admin"}))
    await grants.keep("ann", "linear", wider, BOND)
    with pytest.raises(UpstreamUnavailable):
        await users.lacks(name, frozenset({"admin"}))
    with pytest.raises(ConnectRequired) as lacking:
        await users.lacks(name, frozenset({"root"}))
    assert lacking.value.url == "ann?admin root tools"


@requirement("ACCESS-209")
async def test_a_refused_token_has_its_grant_read_anew(rows: LoginRows, grants: Grants, clock: Clock) -> None:
    users = user_grants(grants, never)
    await grants.keep("ann", "linear", tokens(), BOND)
    credentials = credentials_for(users, await users.named(ANN))
    await credentials.authorization()
    await made_grants(rows, now=clock).revoke("ann", "linear", by="ann")  # at another process
    with pytest.raises(ConnectRequired):
        await credentials.renew(Refusal(401))

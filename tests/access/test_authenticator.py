"""Keys have a life, and what they started ends with it (ACCESS-40 to ACCESS-45)."""

import logging

import pytest

from tests.support.clock import Clock
from tests.support.effort import bounded_effort
from tests.support.requirement import requirement
from wicketgate.access.authenticator import Authenticator, KeyUses, RefusedCredential, Revocation
from wicketgate.access.identity import HashedKey, Identity, KeyRing, expiry_notes, hash_key
from wicketgate.access.issuers import Issuers
from wicketgate.access.resources import Resources
from wicketgate.net import HttpClient, Outgoing

ADA = Identity("ada", ("tools:a:*",))
DAY = 86_400.0


class House:
    """An authenticator with its clock; *failures* are what its observer was called with."""

    def __init__(self, *keys: HashedKey) -> None:
        self.clock = Clock(0.0)
        self.ring = KeyRing(keys, self.clock)
        self.issuers = Issuers(lambda: HttpClient(Outgoing()), self.clock, self.clock)
        self.authenticator = Authenticator(self.ring, self.issuers, Resources("", (), ""))
        self.failures: list[tuple[str, str]] = []
        self.authenticator.observe(lambda reason, key_id, source: self.failures.append((reason, key_id)))

    def message(self, credential: str | None, now: float = 0.0) -> str:
        self.clock.now = now
        outcome = self.authenticator.authenticate(credential)
        assert outcome is not None, "a token has to be verified first"
        return outcome.message if isinstance(outcome, RefusedCredential) else outcome.key_id


def key(key_id: str = "k", secret: str = "", identity: Identity = ADA, **more: object) -> HashedKey:
    return HashedKey(key_id, hash_key(secret or key_id), identity, **more)  # type: ignore[arg-type]


@requirement("ACCESS-43")
def test_a_key_is_good_from_its_beginning_until_just_before_its_end() -> None:
    house = House(key(not_before=100.0, expires_at=200.0))
    found = [house.message("k", now) for now in (99.9, 100.0, 199.9, 200.0)]
    assert found == ["Credentials are not valid yet", "k", "k", "Credentials have expired"]
    assert house.failures == [("not_yet_valid", "k"), ("expired", "k")]


@requirement("ACCESS-43", "ACCESS-45")
def test_each_failure_is_observed_with_its_reason_and_the_key_if_there_is_one() -> None:
    house = House(key("gone", suspended=True, expires_at=1.0))
    assert [house.message(credential, 5.0) for credential in (None, "guess", "gone")] == [
        "No credentials provided",
        "Invalid credentials",
        "Identity is suspended",
    ]
    assert house.failures == [("missing", ""), ("unknown", ""), ("suspended", "gone")]


@requirement("ACCESS-44")
def test_two_keys_of_one_actor_are_good_at_once_and_each_has_its_own_last_use() -> None:
    house = House(key("old", expires_at=200.0), key("new", not_before=100.0))
    assert (house.message("old", 150.0), house.message("new", 160.0)) == ("old", "new")
    assert house.message("old", 250.0) == "Credentials have expired"
    life = house.ring.life()
    assert (life["old"].last_used, life["new"].last_used) == (150.0, 160.0)
    assert (life["old"].expires_at, life["new"].expires_at) == (200.0, None)
    house.ring.replace([key("new")])
    assert (list(house.ring.life()), house.ring.life()["new"].last_used) == (["new"], 160.0)
    house.ring.replace([key("new", "another secret")])
    assert house.ring.life()["new"].last_used is None


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        ([key()], True),
        ([key(identity=Identity("ada", ("tools:*",)))], True),
        ([key(identity=Identity("ada", ("memory:*", "tools:a:*")))], True),
        ([key(identity=Identity("ada", ("tools:a:one",)))], False),
        ([key(identity=Identity("ada", ()))], False),
        ([key(identity=Identity("eve", ("tools:a:*",)))], False),
        ([key(suspended=True)], False),
        ([key(expires_at=5.0)], False),
        ([key(not_before=50.0)], False),
        ([], False),
    ],
)
@requirement("ACCESS-40")
def test_what_a_key_has_started_stands_while_the_key_is_good_and_allows_as_much(
    later: list[HashedKey], stands: bool
) -> None:
    house = House(key())
    outcome = house.authenticator.authenticate("k")
    assert isinstance(outcome, Identity)
    assert house.ring.stands(outcome)
    house.clock.now = 10.0
    house.ring.replace(later)
    assert house.ring.stands(outcome) is stands
    assert (house.ring.lapsed() == []) is stands
    assert house.ring.lapsed() == [], "each lapse is reported once"


@requirement("ACCESS-40")
def test_looking_at_a_key_of_thousands_of_permissions_takes_a_few_calls_for_each() -> None:
    many = tuple(f"tools:*:get_{number}" for number in range(2_000))
    house = House(key(identity=Identity("ada", many)))
    house.message("k")
    with bounded_effort(calls=10 * len(many)):
        assert house.ring.lapsed() == []
    house.ring.replace([key(identity=Identity("ada", many[1:]))])
    assert [lapse.key_id for lapse in house.ring.lapsed()] == ["k"]


@requirement("ACCESS-40")
def test_an_identity_that_no_key_has_proved_always_stands() -> None:
    assert House().ring.stands(Identity("local", ("*",)))


@requirement("CHAT-127")
def test_what_was_started_at_another_process_goes_on_under_a_key_that_is_good_here_and_ends_with_it() -> None:
    house = House(key())
    started = Identity("ada", house.ring.keys()[0].identity.permissions, "k")
    assert not house.ring.resumes(Identity("ada", (*started.permissions, "ops:write"), "k"))
    assert not house.ring.resumes(Identity("bob", started.permissions, "k"))
    assert house.ring.lapsed() == []
    assert house.ring.resumes(started)
    house.ring.replace([])
    assert [lapse.key_id for lapse in house.ring.lapsed()] == ["k"]
    assert not house.ring.resumes(started)
    assert house.ring.resumes(Identity("local", ("*",)))


@requirement("ACCESS-39")
def test_another_key_under_the_same_id_ends_what_the_first_has_started() -> None:
    house = House(key())
    house.message("k")
    house.ring.replace([key(secret="another")])
    assert [lapse.key_id for lapse in house.ring.lapsed()] == ["k"]


@requirement("ACCESS-39")
def test_permissions_that_were_added_and_used_count_when_they_are_taken_back() -> None:
    house = House(key())
    house.message("k")
    house.ring.replace([key(identity=Identity("ada", ("tools:*",)))])
    assert house.ring.lapsed() == []
    house.message("k")
    house.ring.replace([key()])
    assert [lapse.reason for lapse in house.ring.lapsed()] == ["other actor or permissions"]


@requirement("ACCESS-39", "ACCESS-42")
def test_a_lapse_ends_the_uses_of_that_key_alone_and_the_log_counts_them(caplog: pytest.LogCaptureFixture) -> None:
    house, uses, ended = House(key("a", expires_at=10.0), key("b")), KeyUses(), list[str]()
    revocation = Revocation(house.ring, house.issuers, lambda: None)
    revocation.add(uses.end_of)
    revocation.add(lambda key_id: {"others": 2})
    for name in ("a", "a", "b"):
        house.message(name)
        uses.begin(name, lambda name=name: ended.append(name))  # type: ignore[misc]
    uses.begin("a", lambda: ended.append("over")).finish()
    uses.begin("a", lambda: ended.append("stream")).kind = "streams"
    revocation.enforce()
    assert ended == []
    house.clock.now = 10.0
    with caplog.at_level(logging.WARNING, "wicketgate.access"):
        revocation.enforce()
        revocation.enforce()
    assert sorted(ended) == ["a", "a", "stream"]
    assert [record.getMessage() for record in caplog.records] == [
        "key a is no longer valid (expired): 1 streams and 2 calls ended"
    ]


@requirement("ACCESS-46")
def test_keys_that_have_expired_or_soon_do_are_named_and_no_others() -> None:
    keys = [
        key("old", expires_at=DAY),
        key("soon", expires_at=16 * DAY),
        key("later", expires_at=16 * DAY + 1),
        key("off", expires_at=DAY, suspended=True),
        key("ever"),
    ]
    assert list(expiry_notes(keys, 2 * DAY)) == [
        "key old: expired on 1970-01-02 00:00 UTC",
        "key soon: expires on 1970-01-17 00:00 UTC, in 14 days or less",
    ]

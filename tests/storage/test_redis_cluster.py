"""A Cluster of three masters, with a password, under every contract that a Redis keeps."""

import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.storage import (
    test_call_state,
    test_call_stores,
    test_mcp_session_stores,
    test_redis_bursts,
    test_redis_link,
    test_redis_mail,
    test_redis_runs,
    test_redis_stores,
    test_run_stores,
    test_shares,
)
from tests.storage.test_redis_link import linked, rights_of_the_guide, use_everything
from tests.storage.test_shares import open_shares as open_shares
from tests.support.redis import PASSWORD, RedisCluster, redis_cluster
from tests.support.requirement import requirement
from wicketgate.storage.redis.client import RedisLink
from wicketgate.storage.redis.names import Names
from wicketgate.storage.redis.url import read_url

pytestmark = pytest.mark.usefixtures("patient_stores")


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    with redis_cluster(tmp_path_factory.mktemp("cluster"), password=PASSWORD) as cluster:
        yield cluster


@pytest.fixture
async def link(redis: RedisCluster) -> AsyncIterator[RedisLink]:
    made = RedisLink(read_url(redis.url), names=Names(secrets.token_hex(8)))
    yield made
    await made.aclose()


class TestArtifacts(test_redis_stores.TestArtifacts):
    pass


class TestUsedApprovals(test_redis_stores.TestUsedApprovals):
    pass


class TestLearned(test_redis_stores.TestLearned):
    pass


class TestQuotas(test_call_state.TestQuotasInRedis):
    pass


class TestResults(test_call_state.TestResultsInRedis):
    pass


class TestSeenCards(test_call_state.TestSeenCardsInRedis):
    pass


class TestCalls(test_call_stores.TestRedis):
    pass


class TestMcpSessions(test_mcp_session_stores.TestRedis):
    pass


class TestMail(test_redis_mail.TestMailPeers):
    pass


class TestRuns(test_run_stores.TestRedisRunStore):
    pass


class TestPlaces(test_shares.TestRedis):
    pass


test_a_step_can_be_cancelled = test_redis_link.test_a_step_can_be_cancelled_at_any_moment
test_a_caller_who_goes = test_redis_bursts.test_a_caller_who_goes_disturbs_no_other
test_runs_that_are_lost = test_redis_runs.test_runs_that_redis_has_lost_are_kept_anew_and_their_claims_stay
test_all_runs_are_bounded = test_redis_runs.test_all_runs_are_bounded_and_who_holds_most_loses_first
test_steps_of_many_runs = test_redis_runs.test_steps_of_many_runs_at_once_and_in_turn_are_kept_in_order


@requirement("OPS-330")
async def test_every_kind_of_step_runs(link: RedisLink) -> None:
    async with link.running():
        await use_everything(link)
        assert not link.measures.errors


@requirement("OPS-330")
async def test_a_user_with_the_rights_that_the_guide_names_is_enough(redis: RedisCluster) -> None:
    for node in redis.nodes:
        redis.ask(node, "ACL", "SETUSER", "gate", "on", f">{PASSWORD}", *rights_of_the_guide("cluster"))
    async with linked(redis.url.replace("//:", "//gate:")) as link:
        await use_everything(link)
        assert not link.measures.errors
        assert "set appendfsync always" in link.shortfalls[0]

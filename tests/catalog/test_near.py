import time

import pytest

from tests.support.requirement import requirement
from wicketgate.catalog.tool_id import near_ids

IDS = (
    "github:close_issue#0a1b2c3d",
    "github:create_issue#12345678",
    "github:v1.users.list@2",
    "gitlab:create_issue#87654321",
    "jira:create_issue@1.2",
    "slack:send_message#deadbeef",
)


@requirement("S0 §3.4")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("github:close_issue", ["github:close_issue#0a1b2c3d"]),
        ("github:close_issue#00000000", ["github:close_issue#0a1b2c3d"]),
        ("close_issue", ["github:close_issue#0a1b2c3d"]),
        ("jira:create_issue", [IDS[4], IDS[1], IDS[3]]),
        ("create_issue", [IDS[1], IDS[3], IDS[4]]),
        ("github__close_issue", ["github:close_issue#0a1b2c3d"]),
        ("slack.send_message", ["slack:send_message#deadbeef"]),
        ("v1.users.list", ["github:v1.users.list@2"]),
        ("github:close_isue#0a1b2c3d", ["github:close_issue#0a1b2c3d"]),
        ("slack:sendMessage", ["slack:send_message#deadbeef"]),
        ("slack:delete_channel#deadbeef", []),
        ("", []),
        (":", []),
        ("x" * 10_000, []),
        ("\ud800:\n#@", []),
    ],
)
def test_an_id_that_is_not_there_leads_to_those_that_were_meant(wanted: str, expected: list[str]) -> None:
    assert near_ids(wanted, IDS) == expected


@requirement("DESIGN §3")
@pytest.mark.parametrize("wanted", ["create_issue", "github:create_issue#12345678", "github:creat_issue#12345678"])
def test_a_hidden_tool_changes_nothing_in_the_answer(wanted: str) -> None:
    hidden = {each for each in IDS if each.startswith("github:")}
    shown = [each for each in IDS if each not in hidden]
    assert near_ids(wanted, IDS, lambda each: each not in hidden) == near_ids(wanted, shown)


def test_hidden_tools_take_no_place_among_those_compared() -> None:
    hidden = [f"a:send_messag{number:02d}#00000000" for number in range(99)]
    assert near_ids("slack:send_mesage", [*hidden, *IDS], lambda each: each in IDS) == ["slack:send_message#deadbeef"]


def test_ten_thousand_ids_are_looked_through_quickly() -> None:
    ids = [f"server{number % 250}:create_{number}_issue#12345678" for number in range(10_000)]
    for wanted in ("server3:create_253_issue", "server3:create_253_isue", "create_issues"):
        began = time.thread_time()
        near_ids(wanted, ids)
        assert time.thread_time() - began < 0.05

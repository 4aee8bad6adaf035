"""The heading of a message, which is read without decoding the whole body."""

import pytest

from app.mcp.requests import addressed
from tests.support.requirement import requirement
from wicketgate.faces.mcp.message import heading_of, is_second_attempt, request_in


@requirement("FACE-38")
@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","method":"notifications/c\xe6ncelled"}',
        b'{"jsonrpc":"2.0","id":"\xff","method":"ping"}',
        b"[" * 5_000,
        b"",
    ],
)
def test_a_body_that_cannot_be_read_counts_as_a_request(body: bytes) -> None:
    assert heading_of(body) is None
    assert request_in(body) == (True, None)
    assert not is_second_attempt(body)


@requirement("FACE-38")
def test_a_state_that_cannot_be_read_is_no_second_attempt() -> None:
    assert not is_second_attempt(b'{"id":1,"method":"tools/call","params":{"requestState":"\xe6"}}')


@requirement("FACE-38")
@pytest.mark.parametrize("kind", ["cancelled", "progress"])
def test_a_notification_about_what_cannot_be_read_is_about_nothing(kind: str) -> None:
    id = "requestId" if kind == "cancelled" else "progressToken"
    assert addressed(b'{"method":"notifications/%b","params":{"%b":"\xff"}}' % (kind.encode(), id.encode())) is None

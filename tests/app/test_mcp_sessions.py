"""A request belongs to a session, or opens one, by the headers that the SDK goes by too."""

from typing import Any

import pytest
from starlette.datastructures import Headers

from app.mcp_sessions import SESSION_ID, in_session, opens_session

VERSION = b"mcp-protocol-version"
OPENING = b'{"jsonrpc":"2.0","id":1,"method":"initialize"}'
HANDSHAKE, STATELESS = b"2025-11-25", b"2026-07-28"


def post(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "headers": list(headers)}


@pytest.mark.parametrize(("first", "second"), [(HANDSHAKE, STATELESS), (STATELESS, HANDSHAKE)])
def test_of_a_version_that_comes_twice_the_first_counts_as_in_the_sdk(first: bytes, second: bytes) -> None:
    versions = ((VERSION, first), (VERSION, second))
    of_the_sdk = Headers(raw=list(versions)).get(VERSION.decode())
    with_id, without = post(*versions, (SESSION_ID, b"s")), post(*versions)
    handshake = of_the_sdk == HANDSHAKE.decode()
    assert (in_session(with_id), opens_session(with_id, OPENING)) == (handshake, False)
    assert (in_session(without), opens_session(without, OPENING)) == (False, handshake)


def test_blanks_around_a_version_mean_nothing_and_without_one_it_is_the_handshake_era() -> None:
    assert in_session(post((VERSION, HANDSHAKE + b" "), (SESSION_ID, b"s")))
    assert opens_session(post((VERSION, b" ")), OPENING)
    assert in_session(post((SESSION_ID, b"s")))


@pytest.mark.parametrize("method", ["tools/list", "tools/call", "ping"])
def test_a_request_that_is_served_without_a_session_opens_none(method: str) -> None:
    assert not opens_session(post(), b'{"jsonrpc":"2.0","id":1,"method":"%s","params":{}}' % method.encode())
    assert opens_session(post(), b'{"jsonrpc":"2.0","method":"%s"}' % method.encode())
    assert opens_session(post(), b"[" * 100_000)

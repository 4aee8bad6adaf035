"""A request belongs to a session, or opens one, by the headers that the SDK goes by too."""

from typing import Any

import pytest
from starlette.datastructures import Headers

from app.mcp.requests import SESSION_ID, in_session, of_handshake_era

VERSION = b"mcp-protocol-version"
HANDSHAKE, STATELESS = b"2025-11-25", b"2026-07-28"


def post(*headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http", "method": "POST", "headers": list(headers)}


@pytest.mark.parametrize(("first", "second"), [(HANDSHAKE, STATELESS), (STATELESS, HANDSHAKE)])
def test_of_a_version_that_comes_twice_the_first_counts_as_in_the_sdk(first: bytes, second: bytes) -> None:
    versions = ((VERSION, first), (VERSION, second))
    of_the_sdk = Headers(raw=list(versions)).get(VERSION.decode())
    with_id, without = post(*versions, (SESSION_ID, b"s")), post(*versions)
    handshake = of_the_sdk == HANDSHAKE.decode()
    assert (in_session(with_id), in_session(without), of_handshake_era(without)) == (handshake, False, handshake)


def test_blanks_around_a_version_mean_nothing_and_without_one_it_is_the_handshake_era() -> None:
    assert in_session(post((VERSION, HANDSHAKE + b" "), (SESSION_ID, b"s")))
    assert of_handshake_era(post((VERSION, b" ")))
    assert in_session(post((SESSION_ID, b"s")))

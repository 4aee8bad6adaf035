"""Tokens of handshake sessions: what they hold, for whom they open, and how long they are."""

from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp import types as t

from tests.support.clock import Clock
from tests.support.requirement import requirement
from wicketgate.access.seal import Seal
from wicketgate.faces.mcp.session_tokens import LIFE_S, MAX_CHARS, SessionTokens

VERSION = "2025-06-18"


def tokens(*keys: str, face: str = "gateway", clock: Clock | None = None) -> SessionTokens:
    ids = count(1)
    return SessionTokens(
        face, Seal(keys or ("k" * 40,), b"own", clock or Clock(1_000_000.0), lambda: f"session{next(ids)}")
    )


def client(name: str = "cli", version: str = "1", **capabilities: Any) -> dict[str, Any]:
    return {
        "protocolVersion": VERSION,
        "clientInfo": {"name": name, "version": version},
        "capabilities": capabilities,
    }


@requirement("FACE-115", "FACE-212")
@pytest.mark.parametrize("settings", ["small", "x" * 2_000])
def test_a_token_keeps_what_was_agreed_without_extensions_that_are_long(settings: str) -> None:
    declared: dict[str, Any] = {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {"more": 1}},
        "roots": {"listChanged": True},
        "extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": ["a"]}, "mine/x": {"a": settings}},
        "experimental": {"large": {"x": "y" * 10_000}},
    }
    issued = tokens().issue("ann", VERSION, client(**declared))
    opened = tokens().open("ann", issued)
    assert opened is not None
    session = opened[1]
    assert (session.actor, session.version, session.client["clientInfo"]) == ("ann", VERSION, client()["clientInfo"])
    kept = ["elicitation", "sampling", "roots", *(["extensions"] if settings == "small" else [])]
    assert session.client["capabilities"] == {key: declared[key] for key in kept}


@requirement("FACE-212")
def test_a_client_that_declares_more_than_a_token_holds_is_one_without_capabilities() -> None:
    opened = tokens().open("ann", tokens().issue("ann", VERSION, client(elicitation={"x": "y" * 2_000})))
    assert opened is not None
    assert opened[1].client["capabilities"] == {}


@requirement("FACE-115", "FACE-117")
def test_a_token_opens_for_its_actor_at_its_face_for_a_day() -> None:
    clock = Clock(1_000_000.0)
    issued = tokens("a" * 40, clock=clock).issue("ann", VERSION, client())
    rotated = tokens("b" * 40, "a" * 40, clock=clock)
    assert rotated.open("ann", issued) is not None
    assert rotated.open("bob", issued) is None
    assert tokens("b" * 40, clock=clock).open("ann", issued) is None
    assert tokens("a" * 40, face="namespaced", clock=clock).open("ann", issued) is None
    assert rotated.open("ann", issued[:-2]) is rotated.open("ann", "é") is rotated.open("ann", "x" * 9_000) is None
    assert tokens("a" * 40, clock=clock).open("ann", tokens("a" * 40).issue("ann", "1999-01-01", client())) is None
    clock.now += LIFE_S
    assert rotated.open("ann", issued) is None


@requirement("FACE-212")
@given(st.text(), st.text(), st.text())
def test_a_token_is_shorter_than_1500_characters_and_the_sdk_reads_it(actor: str, name: str, version: str) -> None:
    everything: dict[str, Any] = {
        "elicitation": {"form": {}, "url": {}},
        "sampling": {"tools": {}, "context": {}},
        "roots": {},
    }
    everything |= {"extensions": {"io.modelcontextprotocol/ui": {}}}
    issued = tokens().issue(actor, VERSION, client(name, version, **everything))
    assert len(issued) < MAX_CHARS
    opened = tokens().open(actor, issued)
    assert opened is not None
    assert t.InitializeRequestParams.model_validate(opened[1].client, by_name=False)


@requirement("FACE-212")
def test_the_longest_names_fit() -> None:
    long = "\U0001f600" * 100
    assert len(tokens().issue("ann", VERSION, client(long, '"' * 100))) < MAX_CHARS

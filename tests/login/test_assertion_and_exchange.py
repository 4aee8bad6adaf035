"""Assertions as others read them, and the forms of token exchange."""

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from tests.support.requirement import requirement
from wicketgate.login.assertion import PrivateKey, assertion_signer, read_private_key
from wicketgate.login.steps import Answer, Refused, Steps
from wicketgate.login.token_endpoint import Client, Tokens, exchange, id_jag, jwt_bearer

CLIENT = Client("https://as.example", "https://as.example/token", "gate", "none")
KEYS: dict[str, Callable[[], PrivateKey]] = {
    "RS256": lambda: rsa.generate_private_key(65_537, 2_048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@requirement("UP-150")
@pytest.mark.parametrize("algorithm", KEYS)
def test_an_assertion_is_good_for_one_audience_and_a_minute(algorithm: str) -> None:
    key = KEYS[algorithm]()
    pem = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
    signed = assertion_signer(read_private_key(pem), "gate", "k1", lambda: 1_000.5, lambda: "id-1")("https://as")
    assert jwt.get_unverified_header(signed) == {"alg": algorithm, "typ": "JWT", "kid": "k1"}
    read = jwt.decode(
        signed, key.public_key(), [algorithm], audience="https://as", options={"verify_exp": False, "verify_iat": False}
    )
    assert read == {"iss": "gate", "sub": "gate", "aud": "https://as", "jti": "id-1", "iat": 1_000, "exp": 1_060}


@pytest.mark.parametrize("pem", ["", "-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----", "x" * 1_000])
def test_what_is_no_key_is_refused_without_its_text(pem: str) -> None:
    with pytest.raises(ValueError, match="must be the PEM"):
        read_private_key(pem)


def asked(steps: Steps[Any], answer: bytes) -> tuple[dict[str, str], Any]:
    """The form of the one request, and what came of it."""
    form = dict(parse_qsl(next(steps).body.decode()))
    try:
        steps.send(Answer(200, answer))
    except StopIteration as end:
        return form, end.value
    raise AssertionError("a second request")


@requirement("UP-150")
def test_a_token_is_exchanged_and_an_assertion_gets_one() -> None:
    given = b'{"access_token": "t", "token_type": "Bearer", "issued_token_type": "urn:x"}'
    form, tokens = asked(exchange(CLIENT, "subject", audience="a", scopes=(), resource="https://r", now=0.0), given)
    assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:token-exchange"
    assert (form["subject_token"], form["audience"], form["resource"]) == ("subject", "a", "https://r")
    assert isinstance(tokens, Tokens)
    form, tokens = asked(jwt_bearer(CLIENT, "assertion", resource="https://r", now=0.0), given)
    assert (form["grant_type"], form["assertion"]) == ("urn:ietf:params:oauth:grant-type:jwt-bearer", "assertion")


@requirement("UP-150")
def test_the_first_leg_takes_no_other_token_than_it_asked_for() -> None:
    kind = "urn:ietf:params:oauth:token-type:id-jag"
    form, jag = asked(
        id_jag(CLIENT, "idt", audience="https://as", resource="https://r", now=0.0),
        f'{{"access_token": "jag", "token_type": "N_A", "issued_token_type": "{kind}"}}'.encode(),
    )
    assert (form["requested_token_type"], form["subject_token"], jag) == (kind, "idt", "jag")
    with pytest.raises(Refused):
        asked(
            id_jag(CLIENT, "idt", audience="https://as", resource="https://r", now=0.0),
            b'{"access_token": "t", "token_type": "Bearer"}',
        )

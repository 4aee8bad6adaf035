"""Signs the assertions by which a client shows who it is without a secret that travels (RFC 7523 §2.2, §3)."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

LIFETIME_S = 60
_P256_BYTES = 32

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def read_private_key(pem: str) -> PrivateKey:
    """Raises ValueError unless *pem* is an RSA, P-256 or Ed25519 key without a password."""
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("is no PEM of a private key without a password") from None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    if isinstance(key, rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey):
        return key
    raise ValueError("is a key of another kind than RSA, P-256 and Ed25519")


def assertion_signer(
    key: PrivateKey, client_id: str, key_id: str, now: Callable[[], float], new_id: Callable[[], str]
) -> Callable[[str], str]:
    """A function that signs an assertion of *client_id* for an audience, good for a minute and for one use. *key_id* is
    the ``kid`` of its header; empty to leave it out."""

    def sign(audience: str) -> str:
        issued = int(now())
        header = {"alg": _algorithm(key), "typ": "JWT", **({"kid": key_id} if key_id else {})}
        claims = {"iss": client_id, "sub": client_id, "aud": audience, "jti": new_id()}
        text = f"{_encoded(header)}.{_encoded({**claims, 'iat': issued, 'exp': issued + LIFETIME_S})}"
        return f"{text}.{_base64(_signature(key, text.encode('ascii')))}"

    return sign


def _algorithm(key: PrivateKey) -> str:
    match key:
        case rsa.RSAPrivateKey():
            return "RS256"
        case ec.EllipticCurvePrivateKey():
            return "ES256"
    return "EdDSA"


def _signature(key: PrivateKey, text: bytes) -> bytes:
    match key:
        case rsa.RSAPrivateKey():
            return key.sign(text, padding.PKCS1v15(), SHA256())
        case ec.EllipticCurvePrivateKey():
            # JWS wants the two numbers, one behind the other (RFC 7518 §3.4).
            numbers = decode_dss_signature(key.sign(text, ec.ECDSA(SHA256())))
            return b"".join(number.to_bytes(_P256_BYTES, "big") for number in numbers)
    return key.sign(text)


def _encoded(value: Mapping[str, object]) -> str:
    return _base64(json.dumps(value, separators=(",", ":")).encode())


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).decode("ascii").rstrip("=")

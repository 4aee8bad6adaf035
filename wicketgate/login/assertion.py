"""Signs the assertions by which a client shows who it is without a secret that travels (RFC 7523 §2.2, §3)."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha256

import jwt
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from jwt.algorithms import ECAlgorithm

LIFETIME_S = 60
_P256_BYTES = 32
_P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def read_private_key(pem: str) -> PrivateKey:
    """Raises ValueError unless *pem* is an RSA, P-256 or Ed25519 key without a password."""
    try:
        key = load_pem_private_key(pem.encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise ValueError("must be the PEM of a private key without a password") from None
    if isinstance(key, ec.EllipticCurvePrivateKey) and isinstance(key.curve, ec.SECP256R1):
        return key
    if isinstance(key, rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey):
        return key
    raise ValueError("must be an RSA, P-256 or Ed25519 key")


def assertion_signer(
    key: PrivateKey, client_id: str, key_id: str, now: Callable[[], float], new_id: Callable[[], str]
) -> Callable[[str], str]:
    """A function that signs an assertion of *client_id* for an audience, good for a minute and for one use. *key_id* is
    the ``kid`` of its header; empty to leave it out."""
    algorithms = {rsa.RSAPrivateKey: "RS256", ec.EllipticCurvePrivateKey: "ES256"}
    algorithm = next((name for kind, name in algorithms.items() if isinstance(key, kind)), "EdDSA")
    more = {"kid": key_id} if key_id else None

    def sign(audience: str) -> str:
        issued = int(now())
        claims = {"iss": client_id, "sub": client_id, "aud": audience, "jti": new_id()}
        return jwt.encode({**claims, "iat": issued, "exp": issued + LIFETIME_S}, key, algorithm, more)

    return sign


def derived_key(secret: bytes) -> ec.EllipticCurvePrivateKey:
    """The P-256 key of all processes that have *secret*, which must be random."""
    # 16 bytes more than the order has: no number is noticeably more likely than another.
    drawn = HKDF(SHA256(), _P256_BYTES + 16, None, b"wicketgate client document key 1").derive(secret)
    return ec.derive_private_key(int.from_bytes(drawn, "big") % (_P256_ORDER - 1) + 1, ec.SECP256R1())


def public_key(key: ec.EllipticCurvePrivateKey) -> dict[str, str]:
    """The public half as a JWK, with its thumbprint (RFC 7638) as its id."""
    made = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    thumbprint = sha256(json.dumps(made, separators=(",", ":"), sort_keys=True).encode()).digest()
    return {**made, "alg": "ES256", "use": "sig", "kid": urlsafe_b64encode(thumbprint).decode().rstrip("=")}

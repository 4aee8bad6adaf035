"""Keys and signatures of issuers, by joserfc (ACCESS-110 to ACCESS-121). Imported with the first issuer only."""

from collections.abc import Mapping
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, Key, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from wicketgate.access.issuer import TokenRefused

_MAX_HEADER_BYTES = 16 * 1024
_LEAST_RSA_BITS = 2_048
_KINDS: Mapping[str, type[RSAKey | ECKey | OKPKey]] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
_MATERIAL = ("kty", "n", "e", "crv", "x", "y")


class Algorithm(JWSRegistry):
    """Knows one algorithm, without the library's advice about it, and takes headers with certificates in them."""

    max_header_length = _MAX_HEADER_BYTES

    def __init__(self, name: str) -> None:
        super().__init__(algorithms=[name], strict_check_header=False)

    def get_alg(self, name: str) -> Any:
        if self.allowed is None or name not in self.allowed:
            raise TokenRefused
        return self.algorithms[name]

    def claims(self, token: str, key: Key) -> Mapping[str, Any] | None:
        """Returns the claims of *token* if *key* has signed them. Raises TokenRefused for another algorithm."""
        try:
            return jwt.decode(token, key, registry=self).claims
        except (JoseError, ValueError, TypeError, RecursionError):
            return None


def public_key(kind: str, entry: Mapping[str, Any]) -> Key | None:
    """Returns the key of an entry of a key set; None for one that cannot be read, or is too short."""
    maker = _KINDS.get(kind)
    if maker is None:
        return None
    # The library judges the other members of an entry, and fails for odd ones that do not matter here.
    material = {name: entry[name] for name in _MATERIAL if name in entry}
    try:
        key = maker.import_key(material)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return None if isinstance(key, RSAKey) and key.raw_value.key_size < _LEAST_RSA_BITS else key

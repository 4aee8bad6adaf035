"""Whom TLS connections trust. Reading the certificates takes 20 ms, so all of them share it."""

from functools import cache
from ssl import SSLContext

import httpx


@cache
def trusted() -> SSLContext:
    return httpx.create_ssl_context(trust_env=False)

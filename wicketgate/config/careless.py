"""Careless settings, each with what to do about it (OPS-421). Reads no file."""

from collections.abc import Iterator
from ipaddress import ip_network
from urllib.parse import urlsplit

from pydantic import SecretStr

from wicketgate.access.identity import hash_key
from wicketgate.config.settings import LOOPBACK_HOSTS, Settings

_WIDEST_PREFIX = 7
"""10.0.0.0/8 and fc00::/7 are private networks; a wider network contains public addresses."""
_TLS = "put TLS in front, and set server.public_url to its https:// address"
_FEWEST_CHARACTERS = 8
_SHORTEST_SECRET = 8
_WORDS = "admin changeme default demo hello key letmein local password root secret test token wg wicketgate 12345678"


def careless(settings: Settings, readable: str = "") -> dict[str, str]:
    """Returns by setting what the operator should change. *readable* is the text of the configuration file if other
    users may read it."""
    return dict((*_open(settings), *_weak(settings), *_plain(settings, readable)))


def _open(settings: Settings) -> Iterator[tuple[str, str]]:
    server, front = settings.server, settings.auth.trusted_headers
    networks = {"server.trusted_proxies": server.trusted_proxies}
    if front is not None:
        networks["auth.trusted_headers.addresses"] = front.addresses
    for field, addresses in networks.items():
        if wide := next((each for each in addresses if ip_network(each).prefixlen < _WIDEST_PREFIX), None):
            yield field, f"{wide} trusts every client to say who it is; list the addresses of your proxies only"
    if any(each.removesuffix(":*") == "*" for each in server.allowed_hosts):
        yield "server.allowed_hosts", "* lets a web page reach this service by DNS rebinding; list the host names"
    if "*" in server.allowed_origins:
        yield "server.allowed_origins", "* lets every web page read answers; list the origins"
    if server.host not in LOOPBACK_HOSTS and not server.public_url.startswith("https:"):
        yield "server.host", f"{server.host} is reachable from other machines by plain http; {_TLS}"


def _weak(settings: Settings) -> Iterator[tuple[str, str]]:
    auth, front = settings.auth, settings.auth.trusted_headers
    keys: dict[str, tuple[SecretStr | None, ...]] = {
        "auth.seal_keys": auth.seal_keys,
        "auth.audit_key": (auth.audit_key,),
    }
    if front is not None:
        keys["auth.trusted_headers.secrets"] = front.secrets
    for field, values in keys.items():
        if any(each is not None and _repeats(each.get_secret_value()) for each in values):
            yield field, "is easy to guess, because few characters repeat; make one with: openssl rand -base64 48"
    common = set(map(hash_key, ("", *_WORDS.split())))
    for key in (each for each in auth.keys if each.sha256 in common):
        yield f"auth.keys.{key.id}.sha256", "is the hash of a common word; make one with: wicketgate key new"


def _plain(settings: Settings, readable: str) -> Iterator[tuple[str, str]]:
    given = set(settings.auth.secrets())
    for upstream in settings.upstreams:
        own = {each for each in (*upstream.secrets(), *upstream.guessed()) if len(each) >= _SHORTEST_SECRET}
        given |= own
        for field in ("url", "openapi", "base_url"):
            if (own or upstream.oauth) and _is_exposed(getattr(upstream, field)):
                yield f"upstreams.{upstream.name}.{field}", _EXPOSED
    for number, model in enumerate((settings.model, *settings.model.fallbacks)):
        if model.api_key is not None:
            given.add(model.api_key.get_secret_value())
            if _is_exposed(model.base_url):
                yield f"model.{f'fallbacks[{number - 1}].' if number else ''}base_url", _EXPOSED
    if any(len(each) >= _SHORTEST_SECRET and each in readable for each in given - settings.from_variables.keys()):
        yield str(settings.from_file), "other users may read the secrets in it; chmod o-r, or write them as ${VARIABLE}"


_EXPOSED = "credentials go there over plain http, where others can read them; use https://"


def _is_exposed(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname not in LOOPBACK_HOSTS


def _repeats(key: str) -> bool:
    """Returns whether *key* has few different characters, or is one piece again and again."""
    lengths = range(1, len(key) // 2 + 1)
    return len(set(key)) < _FEWEST_CHARACTERS or any(key.startswith(key[length:]) for length in lengths)

"""The base of every section of the configuration, and checks that several sections use."""

import re
from collections.abc import Iterable, Mapping
from ipaddress import ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, Tag, ValidationInfo

from wicketgate.access.identity import parse_granted
from wicketgate.catalog.name_patterns import split_pattern

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

Seconds = Annotated[float, Field(gt=0, le=86_400)]

SECRET_NAME = re.compile(
    r"token|key|secret|passw|passphrase|auth|credential|cookie|jwt|bearer"
    r"|(?:^|[_.-])(?:pat|pass|dsn|webhook)(?:$|[_.-])",
    re.IGNORECASE,
)
_NO_SECRET_NAME = re.compile(
    r"(?:^|(?<!webhook)[_.-])ur[il]$|^(?:home|pwd|user|logname|hostname|lang|lc_\w+|shell|term|tz|tmpdir)$|(?:env|org)$"
    r"|(?:^|[_.-])(?:mode|type|provider|path|file|dir|folder|sock|name|prefix|algorithm|alg|method|host|port|ttl"
    r"|expiry|timeout|enabled|endpoint|audience|issuer|scope|scopes)$"
    r"|(?:^|[_.-])(?:sort|partition|primary|foreign|group|cache|idempotency)[_.-]?key$"
    r"|(?:^|[_.-])(?:author|authors|keyboard|keyword|keywords|keyspace|monkey|tokenizer)(?:[_.-]|$)"
    r"|^(?:max|min|num)[_.-](?:\w+[_.-])?tokens$|^tokenizers_parallelism$",
    re.IGNORECASE,
)


def is_secret_name(name: str, *, by_default: bool = False) -> bool:
    """Returns whether a value of this name is masked in what an upstream says. Values that stand in ordinary data by
    their nature are not (UP-62). With *by_default* every name is one of a secret unless it is known to be harmless."""
    return (by_default or SECRET_NAME.search(name) is not None) and _NO_SECRET_NAME.search(name) is None


class Section(BaseModel):
    """Frozen; an unknown key is an error. The text of a ValidationError shows no value, which may be a secret."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)


def is_web_url(url: str) -> bool:
    """True for an http:// or https:// URL with a host."""
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def check_url(field: str, url: str) -> None:
    """Raises ValueError; the text does not repeat the value, which may hold a credential."""
    if not is_web_url(url):
        raise ValueError(f"{field} must be an http:// or https:// URL with a host")


def _web_url(url: str, info: ValidationInfo) -> str:
    if url:
        check_url(info.field_name or "", url)
    return url


def _secure_url(url: str, info: ValidationInfo) -> str:
    parts = urlsplit(url)
    if url and parts.scheme != "https" and parts.hostname not in LOOPBACK_HOSTS:
        raise ValueError(f"{info.field_name} must be an https:// URL, or http:// on a loopback address")
    return url


def _bare_url(url: str, info: ValidationInfo) -> str:
    parts = urlsplit(url)
    if parts.query or parts.fragment or parts.username is not None:
        raise ValueError(f"{info.field_name} must be a URL without user, query and fragment")
    return url


def _networks(addresses: tuple[str, ...]) -> tuple[str, ...]:
    for address in addresses:
        try:
            ip_network(address)
        except ValueError:
            raise ValueError(f"{address!r} is neither an address nor a network such as 10.0.0.0/8") from None
    return addresses


def _pattern(match: str) -> str:
    split_pattern(match)
    return match


WebUrl = Annotated[str, AfterValidator(_web_url)]
"""A URL of http or https; or none, the empty text."""
SecureUrl = Annotated[WebUrl, AfterValidator(_secure_url)]
"""One of https, or on this machine."""
BareUrl = Annotated[SecureUrl, AfterValidator(_bare_url)]
"""Such a URL without user, query and fragment."""
Networks = Annotated[tuple[str, ...], AfterValidator(_networks)]
"""Addresses and networks."""
ToolPattern = Annotated[str, AfterValidator(_pattern)]
"""Tools as rules name them: ``<namespace>:<tool>`` with ``*``, ``?`` and ``[...]``."""
Granted = Annotated[tuple[str, ...], AfterValidator(parse_granted)]
"""Permissions as an operator grants them."""


def revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}


def refuse_repeats(field: str, values: Iterable[str]) -> None:
    """Raises ValueError that names the repeated value."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {field} {value!r} is used twice")
        seen.add(value)


WORD, SECTION = Tag("(word)"), Tag("(section)")
"""Tags of a value that is a word or a section. They stand in the places of faults, where nobody wrote them."""


def word_or_section(value: object) -> str:
    """The discriminator of such a value."""
    return SECTION.tag if isinstance(value, Mapping | Section) else WORD.tag

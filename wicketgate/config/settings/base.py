"""The base of every section of the configuration, and checks that several sections use."""

import re
from collections.abc import Iterable, Mapping
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr

LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

Seconds = Annotated[float, Field(gt=0, le=86_400)]

SECRET_NAME = re.compile(r"token|key|secret|passw|auth|credential|cookie", re.IGNORECASE)


class Section(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def check_url(field: str, url: str) -> None:
    """Raises ValueError; the text does not repeat the value, which may hold a credential."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"{field} must be an http:// or https:// URL with a host")


def revealed(values: Mapping[str, SecretStr]) -> dict[str, str]:
    return {name: value.get_secret_value() for name, value in values.items()}


def refuse_repeats(field: str, values: Iterable[str]) -> None:
    """Raises ValueError that names the repeated value."""
    seen: set[str] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"the {field} {value!r} is used twice")
        seen.add(value)

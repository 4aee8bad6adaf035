"""What servers of the chat-completions shape want differently in a request, and which of them stands behind an address.

Only what breaks requests is here. What can be read either way is read either way (``openai_chat``).
"""

from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit

DialectName = Literal["openai", "mistral", "groq", "compatible"]


@dataclass(frozen=True, slots=True)
class Dialect:
    """*max_tokens_field* bounds the answer. *nine_char_ids*: call ids must be nine letters and digits. *one_system*:
    several system messages go out as one, since many chat templates allow no other. *echoes_thoughts*: takes back what
    it thought while its tools run; who wants that answers 400 without it."""

    max_tokens_field: str = "max_tokens"
    nine_char_ids: bool = False
    one_system: bool = True
    echoes_thoughts: bool = True


DIALECTS: dict[DialectName, Dialect] = {
    "openai": Dialect(max_tokens_field="max_completion_tokens", one_system=False),
    "mistral": Dialect(nine_char_ids=True, echoes_thoughts=False),
    "groq": Dialect(max_tokens_field="max_completion_tokens", echoes_thoughts=False),
    "compatible": Dialect(),
}

_HOSTS: tuple[tuple[str, DialectName], ...] = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "openai"),
    ("mistral.ai", "mistral"),
    ("groq.com", "groq"),
)


def dialect_of(base_url: str) -> DialectName:
    """By the host; servers that are run at home, and proxies, are ``compatible``."""
    host = (urlsplit(base_url).hostname or "").lower()
    for known, name in _HOSTS:
        if host == known or host.endswith("." + known):
            return name
    return "compatible"

"""The model that the configuration asks for; nothing else in the house knows which one it is (S3, E97)."""

import random
from collections.abc import Iterator
from time import monotonic

from wicketgate.config.settings import ModelChoice, ModelSettings
from wicketgate.engine.fallback import Candidate, FallbackProvider, Patience
from wicketgate.models.anthropic.exchange import AnthropicMessagesProvider
from wicketgate.models.endpoint import ModelAddress, Timeouts
from wicketgate.models.openai.exchange import OpenAIChatProvider
from wicketgate.models.openai.request import DIALECTS, dialect_of
from wicketgate.models.provider import Provider
from wicketgate.models.scripted.model import ScriptedModel
from wicketgate.net import Outgoing


def make_provider(settings: ModelSettings, outgoing: Outgoing) -> Provider:
    """The configured model with those behind it. Raises ConfigError."""
    if settings.provider == "scripted" and not settings.fallbacks:
        return ScriptedModel()
    return FallbackProvider(
        list(_candidates(settings, outgoing)),
        Patience(settings.attempts, settings.patience_s),
        now=monotonic,
        chance=random.random,
    )


def _candidates(settings: ModelSettings, outgoing: Outgoing) -> Iterator[Candidate]:
    for number, choice in enumerate((settings, *settings.fallbacks)):
        window = choice.context_tokens or settings.context_tokens
        # Two may be the same model under different keys; a name in the log has to tell them apart.
        name = f"model {choice.model or choice.provider}" + (f" (fallback {number})" if number else "")
        yield Candidate(name, _provider(choice, settings, outgoing, window), window)


def _provider(choice: ModelChoice, settings: ModelSettings, outgoing: Outgoing, context_tokens: int) -> Provider:
    if choice.provider == "scripted":
        return ScriptedModel()
    api_key = choice.api_key.get_secret_value() if choice.api_key else None
    timeouts = Timeouts(settings.first_event_timeout_s, settings.idle_timeout_s, settings.stall_timeout_s)
    address = ModelAddress(choice.base_url, api_key, timeouts, outgoing)
    if choice.provider == "anthropic-messages":
        return AnthropicMessagesProvider(
            address,
            choice.model,
            context_tokens=context_tokens,
            max_tokens=choice.max_tokens or settings.answer_tokens,
            extra=choice.extra,
        )
    return OpenAIChatProvider(
        address,
        choice.model,
        context_tokens=context_tokens,
        dialect=DIALECTS[dialect_of(choice.base_url) if choice.dialect == "auto" else choice.dialect],
        max_tokens=choice.max_tokens,
        extra=choice.extra,
    )

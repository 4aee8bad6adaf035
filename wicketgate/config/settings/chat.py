"""The sections ``model`` and ``engine``: the model that answers with its stand-ins, and the course of a chat."""

from decimal import Decimal
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from wicketgate.config.settings.base import Seconds, Section, check_url
from wicketgate.models.watched import ModelPrices

Price = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]


class PriceSettings(Section):
    """Prices of a million tokens, all in one currency of your choice."""

    input: Price
    """Tokens of prompts."""
    output: Price
    """Tokens of answers, those of reasoning among them."""
    cached_input: Price | None = None
    """Tokens that the provider read from its prompt cache. None: as *input*."""
    cache_write: Price | None = None
    """Tokens that it put there. None: as *input*."""

    def made(self) -> ModelPrices:
        of_cache = [self.input if each is None else each for each in (self.cached_input, self.cache_write)]
        return ModelPrices(*(int(each * 10**6) for each in (self.input, self.output, *of_cache)))


class ModelChoice(Section):
    """One model, and where it is."""

    provider: Literal["scripted", "openai-chat", "anthropic-messages"] = "scripted"
    """``openai-chat`` is any server that speaks chat completions; ``scripted`` is a small stand-in that needs no
    account."""
    base_url: str = ""
    """The URL before the paths of the dialect, such as https://api.openai.com/v1 or https://api.anthropic.com."""
    model: str = ""
    """The name that the provider knows the model by."""
    api_key: SecretStr | None = None
    """The credential, by a variable: ``${OPENAI_API_KEY}``."""
    context_tokens: int | None = Field(default=None, ge=1_000)
    """The model's window. None: as that of the first model."""
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer to ask for. None leaves it to the server; a dialect that needs one takes ``answer_tokens``."""
    dialect: Literal["auto", "openai", "mistral", "groq", "compatible"] = "auto"
    """The server whose deviations ``openai-chat`` allows for. ``auto`` goes by the host; name it behind a proxy."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields for the body of every request, such as ``temperature`` or ``parallel_tool_calls``."""
    prices: PriceSettings | None = None
    """The cost of its tokens. If one model has prices, all need them."""

    @field_validator("extra")
    @classmethod
    def _leave_the_engine_its_own(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(extra.keys() & _SET_BY_ENGINE):
            raise ValueError(f"{taken[0]} is set by the engine and cannot be given here")
        return extra

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider != "scripted":
            if not self.base_url:
                usual = _USUAL_URLS[self.provider]
                raise ValueError(f"base_url is missing; {self.provider} needs {usual}, or the URL of your server")
            check_url("base_url", self.base_url)
            if not self.model:
                raise ValueError("model is required: the provider's name of the model")
        elif "provider" not in self.model_fields_set and (self.base_url or self.api_key is not None):
            raise ValueError("provider is missing: openai-chat (any server of chat completions) or anthropic-messages")
        return self


_USUAL_URLS = {"openai-chat": "https://api.openai.com/v1", "anthropic-messages": "https://api.anthropic.com"}
_SET_BY_ENGINE = {"model", "messages", "system", "tools", "stream", "stream_options"}


class FallbackSettings(ModelChoice):
    """A model that stands in. No provider is the default: the scripted one must never answer for a real model."""

    provider: Literal["openai-chat", "anthropic-messages"]


class ModelSettings(ModelChoice):
    context_tokens: int = Field(default=128_000, ge=1_000)
    """The model's window."""
    answer_tokens: int = Field(default=4_096, ge=1)
    """Part of the window that is kept free for an answer; at most half of what the tool definitions leave."""
    first_event_timeout_s: Seconds = 30.0
    """Longest wait from the request to the first event of the answer."""
    idle_timeout_s: Seconds = 60.0
    """Between bytes; keep-alives of the server count."""
    attempts: int = Field(default=3, ge=1, le=10)
    """Requests to a model that is overloaded or cannot be reached, as long as nothing of an answer has come. All waits
    between them take at most a minute."""
    fallbacks: tuple[FallbackSettings, ...] = Field(default=(), max_length=8)
    """Asked in this order if the model before fails before its first word; after an overflow only those with a larger
    window."""


class ResumeSettings(Section):
    """Bounds of runs whose request carries an Idempotency-Key."""

    keep_s: Seconds = 120.0
    """Time after its end in which the events of a run can be read again."""
    grace_s: Seconds = 5.0
    """Time in which a client may come back before its run is cancelled (``on_disconnect: cancel``)."""


class EngineSettings(Section):
    max_iterations: int | None = Field(default=None, ge=1)
    """Turns that called tools; after them the run ends. None: no bound."""
    tool_timeout_s: Seconds = 30.0
    """Time for a call, unless its upstream sets another."""
    loop_guard: int | None = Field(default=3, ge=2)
    """Identical calls with identical results until the model gets an error instead; null turns the guard off. Calls
    that may write are always made."""
    max_streams: int = Field(default=500, ge=1)
    """Chats at once in each process."""
    max_streams_per_actor: int | None = Field(default=None, ge=1)
    """Those of one actor in all processes that share ``storage.url``. None shares the places of each process by what
    each actor holds there (``access/shares.py``)."""
    heartbeat_s: Seconds = 15.0
    """Time between the comments that keep an idle stream open."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """Fate of a run with an Idempotency-Key that has lost its reader; a request may choose otherwise."""
    resume: ResumeSettings = ResumeSettings()
    """Runs that a client can come back to."""

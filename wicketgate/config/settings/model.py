"""The section ``model``: which model answers, and which ones stand in for it."""

from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from wicketgate.config.settings.base import Seconds, Section, check_url


class ModelChoice(Section):
    """One model, and where it is."""

    provider: Literal["scripted", "openai-chat", "anthropic-messages"] = "scripted"
    base_url: str = ""
    model: str = ""
    api_key: SecretStr | None = None
    context_tokens: int | None = Field(default=None, ge=1_000)
    max_tokens: int | None = Field(default=None, ge=1)
    """The longest answer to ask for; None leaves it to the server, or is ``answer_tokens`` where one must be named."""
    dialect: Literal["auto", "openai", "mistral", "groq", "compatible"] = "auto"
    """Of ``openai-chat``: whose quirks are met. ``auto`` goes by the host; name it for a server behind a proxy."""
    extra: dict[str, Any] = Field(default_factory=dict)
    """Fields for the body of every request, such as ``temperature`` or ``parallel_tool_calls``."""

    @field_validator("extra")
    @classmethod
    def _not_the_loops(cls, extra: dict[str, Any]) -> dict[str, Any]:
        if taken := sorted(extra.keys() & _LOOPS_OWN):
            raise ValueError(f"{taken[0]} is set by the engine and cannot be given here")
        return extra

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.provider != "scripted":
            check_url("base_url", self.base_url)
            if not self.model:
                raise ValueError("model is required: the name that the provider knows it by")
        return self


_LOOPS_OWN = {"model", "messages", "system", "tools", "stream", "stream_options"}


class FallbackSettings(ModelChoice):
    """A stand-in that understands nothing must never answer for a model, so there is no default."""

    provider: Literal["openai-chat", "anthropic-messages"]


class ModelSettings(ModelChoice):
    context_tokens: int = Field(default=128_000, ge=1_000)
    answer_tokens: int = Field(default=4_096, ge=1)
    """What of the window is kept free for an answer; never more than half of what the tool definitions leave."""
    first_event_timeout_s: Seconds = 30.0
    idle_timeout_s: Seconds = 60.0
    """Between bytes: a server's keep-alives count."""
    stall_timeout_s: Seconds = 300.0
    """Between events of the answer: keep-alives do not count."""
    attempts: int = Field(default=3, ge=1, le=10)
    """How often a model is asked that is overloaded or not there, as long as nothing of an answer has come."""
    patience_s: float = Field(default=60.0, ge=0, le=3_600)
    """How long all waits between attempts may take together; no single one takes more than a minute."""
    fallbacks: tuple[FallbackSettings, ...] = Field(default=(), max_length=8)
    """Asked in this order when the model before fails before its first word; after an overflow only a larger one."""

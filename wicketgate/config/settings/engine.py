"""The section ``engine``: how a chat runs, and how a client comes back to it."""

from typing import Literal

from pydantic import Field

from wicketgate.config.settings.base import Seconds, Section


class ResumeSettings(Section):
    """Of runs whose request carries an Idempotency-Key."""

    keep_s: Seconds = 120.0
    """How long the events of a run can be asked for again after its end."""
    grace_s: Seconds = 5.0
    """With ``on_disconnect: cancel``, how long a run waits for its client to come back."""
    detached_s: Seconds = 600.0
    """With ``on_disconnect: continue``, how long a run goes on that nobody reads."""
    run_bytes: int = Field(default=1024 * 1024, ge=64 * 1024)
    total_bytes: int = Field(default=128 * 1024 * 1024, ge=1024 * 1024)


class EngineSettings(Section):
    max_iterations: int | None = Field(default=None, ge=1)
    tool_timeout_s: Seconds = 30.0
    max_parallel_tools: int = Field(default=8, ge=1, le=1_000)
    max_calls_per_turn: int = Field(default=128, ge=1, le=10_000)
    loop_guard: int | None = Field(default=3, ge=2)
    """From which identical call on, with the same result each time, the model gets an error; null is never."""
    max_streams: int = Field(default=500, ge=1)
    heartbeat_s: Seconds = 15.0
    stuck_reader_s: Seconds = 60.0
    """A client that takes nothing of what waits for it is cut after so long."""
    on_disconnect: Literal["cancel", "continue"] = "cancel"
    """What becomes of a run with an Idempotency-Key that nobody reads; its request may say otherwise."""
    resume: ResumeSettings = ResumeSettings()

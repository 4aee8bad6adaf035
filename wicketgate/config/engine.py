"""Makes the chat engine from the settings: its window, its limits, and the runs that a client can come back to."""

import secrets
from functools import partial
from time import monotonic

from wicketgate.catalog.tokens import TokenCounter
from wicketgate.config.arrangement import call_policies
from wicketgate.config.settings import EngineSettings, ModelSettings, Settings
from wicketgate.context.sizes import CountedTexts
from wicketgate.engine.keyed_runs import KeyedRuns, ResumeLimits
from wicketgate.engine.limits import StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.engine.tool_rounds import EngineLimits
from wicketgate.engine.turn import ModelWindow
from wicketgate.storage.memory_journal import JournalBounds, MemoryJournal


def engine_limits(settings: Settings) -> EngineLimits:
    """Returns the limits of one run. The runtime ends each call by its own deadline; the engine's is longer."""
    longest_s = max([settings.engine.tool_timeout_s, *(p.longest_s() for p in call_policies(settings).values())])
    engine = settings.engine
    return EngineLimits(
        engine.max_iterations, longest_s + 1, engine.max_parallel_tools, engine.max_calls_per_turn, engine.loop_guard
    )


def model_window(settings: ModelSettings, tokens: TokenCounter) -> ModelWindow:
    return ModelWindow(settings.context_tokens, settings.answer_tokens, CountedTexts(tokens))


def make_keyed_runs(engine: Engine, streams: StreamLimit, settings: EngineSettings) -> KeyedRuns:
    resume = settings.resume
    bounds = JournalBounds(resume.total_bytes, resume.run_bytes, resume.run_bytes // 4, resume.keep_s)
    limits = ResumeLimits(resume.grace_s, resume.detached_s, settings.on_disconnect)
    return KeyedRuns(engine, MemoryJournal(bounds, monotonic), streams, limits, partial(secrets.token_hex, 6))

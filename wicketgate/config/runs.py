"""Runs that can be come back to, built from the settings: which journal, with which bounds."""

import secrets
from functools import partial
from time import monotonic

from wicketgate.config.settings import EngineSettings
from wicketgate.engine.keyed_runs import KeyedRuns, ResumeLimits
from wicketgate.engine.limits import StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.storage.memory_journal import JournalBounds, MemoryJournal


def make_keyed_runs(engine: Engine, streams: StreamLimit, settings: EngineSettings) -> KeyedRuns:
    resume = settings.resume
    bounds = JournalBounds(resume.total_bytes, resume.run_bytes, resume.run_bytes // 4, resume.keep_s)
    limits = ResumeLimits(resume.grace_s, resume.detached_s, settings.on_disconnect)
    return KeyedRuns(engine, MemoryJournal(bounds, monotonic), streams, limits, partial(secrets.token_hex, 6))

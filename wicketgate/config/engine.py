"""Makes the chat engine's parts from the settings: model, window, limits, approvals, and runs that clients resume."""

import logging
import random
import secrets
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic, time
from typing import TYPE_CHECKING

from wicketgate.access.identity import Standing, always_good
from wicketgate.access.seal import ApprovalSeal, Seal
from wicketgate.config.runtime import call_policies
from wicketgate.config.settings import AuthSettings, ModelChoice, ModelSettings, ResumeSettings, Settings
from wicketgate.context.build import CountedTexts
from wicketgate.engine.approval_desk import ApprovalDesk
from wicketgate.engine.approvals import Report
from wicketgate.engine.detached import DetachedRuns
from wicketgate.engine.fallback import Candidate, FallbackProvider, Patience
from wicketgate.engine.journal import Journal
from wicketgate.engine.keyed_runs import KeyedRuns, ResumeLimits
from wicketgate.engine.limits import StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.engine.sealed_approvals import OnceStore
from wicketgate.engine.tool_rounds import EngineLimits
from wicketgate.engine.turn import ModelWindow
from wicketgate.engine.waiting_calls import WaitingCalls
from wicketgate.models.endpoint import ModelAddress, Timeouts
from wicketgate.models.provider import Provider
from wicketgate.net import Outgoing
from wicketgate.peers import Peers
from wicketgate.storage.kept_journal import KeptJournal
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory_journal import JournalBounds, MemoryJournal
from wicketgate.storage.memory_once import MemoryOnceStore
from wicketgate.storage.run_store import RunStore
from wicketgate.tokens import TokenCounter

if TYPE_CHECKING:
    from wicketgate.storage.redis.client import RedisLink

log = logging.getLogger("wicketgate.approvals")


def make_provider(settings: ModelSettings, outgoing: Outgoing) -> Provider:
    """Makes the configured model with its fallbacks. Raises ConfigError."""
    if settings.provider == "scripted" and not settings.fallbacks:
        return _provider(settings, settings, outgoing, settings.context_tokens)
    return FallbackProvider(
        list(_candidates(settings, outgoing)),
        Patience(settings.attempts, settings.patience_s),
        now=monotonic,
        chance=random.random,
    )


def each_model(settings: ModelSettings, outgoing: Outgoing) -> Iterator[tuple[str, ModelChoice, Provider]]:
    """Yields each configured model: its place in the settings, the settings, and a provider that asks it alone."""
    for number, choice in enumerate((settings, *settings.fallbacks)):
        place = f"model.fallbacks[{number - 1}]" if number else "model"
        yield place, choice, _provider(choice, settings, outgoing, choice.context_tokens or settings.context_tokens)


def _candidates(settings: ModelSettings, outgoing: Outgoing) -> Iterator[Candidate]:
    for number, choice in enumerate((settings, *settings.fallbacks)):
        window = choice.context_tokens or settings.context_tokens
        # Numbered, since two may be the same model under different keys.
        name = f"model {choice.model or choice.provider}" + (f" (fallback {number})" if number else "")
        yield Candidate(name, _provider(choice, settings, outgoing, window), window)


def _provider(choice: ModelChoice, settings: ModelSettings, outgoing: Outgoing, context_tokens: int) -> Provider:
    if choice.provider == "scripted":
        from wicketgate.models.scripted.model import ScriptedModel

        return ScriptedModel()
    api_key = choice.api_key.get_secret_value() if choice.api_key else None
    timeouts = Timeouts(settings.first_event_timeout_s, settings.idle_timeout_s, settings.stall_timeout_s)
    address = ModelAddress(choice.base_url, api_key, timeouts, outgoing)
    if choice.provider == "anthropic-messages":
        from wicketgate.models.anthropic.exchange import AnthropicMessagesProvider

        return AnthropicMessagesProvider(
            address,
            choice.model,
            context_tokens=context_tokens,
            max_tokens=choice.max_tokens or settings.answer_tokens,
            extra=choice.extra,
        )
    from wicketgate.models.openai.exchange import OpenAIChatProvider
    from wicketgate.models.openai.request import DIALECTS, dialect_of

    return OpenAIChatProvider(
        address,
        choice.model,
        context_tokens=context_tokens,
        dialect=DIALECTS[dialect_of(choice.base_url) if choice.dialect == "auto" else choice.dialect],
        max_tokens=choice.max_tokens,
        extra=choice.extra,
    )


def engine_limits(settings: Settings) -> EngineLimits:
    """Returns the limits of one run. Each call ends by the runtime's deadline; the engine's comes a second later."""
    longest_s = max([settings.engine.tool_timeout_s, *(p.longest_s() for p in call_policies(settings).values())])
    engine = settings.engine
    return EngineLimits(
        engine.max_iterations,
        longest_s + 1,
        engine.max_parallel_tools,
        engine.max_calls_per_turn,
        engine.loop_guard,
        settings.tasks.longest_s,
    )


def model_window(settings: ModelSettings, tokens: TokenCounter) -> ModelWindow:
    return ModelWindow(settings.context_tokens, settings.answer_tokens, CountedTexts(tokens))


def make_keyed_runs(
    engine: Engine,
    streams: StreamLimit,
    detached: DetachedRuns,
    settings: Settings,
    measures: StorageMeasures | None = None,
    redis: "RedisLink | None" = None,
) -> KeyedRuns:
    """Makes the runs with a key, and their journal: in the file or Redis of ``storage.url``, or in memory. Raises
    ConfigError."""
    resume = settings.engine.resume
    limits = ResumeLimits(resume.grace_s, resume.detached_s, settings.engine.on_disconnect, resume.state_bytes)
    journal = _make_journal(resume, settings.storage.sqlite_file, measures, redis)
    return KeyedRuns(engine, journal, streams, detached, limits, partial(secrets.token_hex, 6))


def _make_journal(
    resume: ResumeSettings, file: Path | None, measures: StorageMeasures | None, redis: "RedisLink | None"
) -> Journal:
    bounds = JournalBounds(resume.total_bytes, resume.run_bytes, resume.run_bytes // 4, resume.keep_s)
    replica = secrets.token_hex(8)
    if redis is not None:
        from wicketgate.storage.redis.runs import RedisRunStore

        store: RunStore = RedisRunStore(redis, bounds, replica)
    elif file is not None:
        from wicketgate.storage.sqlite_runs import SQLiteRunStore

        store = SQLiteRunStore(file, bounds, time, replica, measures)
    else:
        return MemoryJournal(bounds, monotonic)
    return KeptJournal(MemoryJournal(replace(bounds, joins=False), monotonic), store)


def make_seal(settings: AuthSettings) -> Seal:
    """Makes the seal. Without ``seal_keys`` its key is random, and what it seals is void when the process ends."""
    return Seal(settings.ring(), secrets.token_bytes(32), time, lambda: secrets.token_urlsafe(12))


def make_approval_desk(
    settings: Settings,
    seal: Seal,
    report: Report | None = None,
    measures: StorageMeasures | None = None,
    redis: "RedisLink | None" = None,
    peers: Peers | None = None,
    stands: Standing = always_good,
) -> ApprovalDesk:
    """Makes the desk, which reports decisions to *report*. Raises ConfigError.

    Logs a warning if a restart would lose approvals that are meant to last.
    """
    file = settings.storage.sqlite_file
    kept = file is not None or redis is not None
    if settings.auth.seal_keys and not kept:
        log.warning("approvals outlive a restart, but which were used does not: set storage.url to a file or a Redis")
    if not settings.auth.seal_keys and kept and any(rule.approval != "never" for rule in settings.access):
        log.warning("approvals end with this process, because auth.seal_keys is not set")
    used = _used_approvals(file, measures, redis)
    server = settings.server
    page = f"{server.public_url or f'http://localhost:{server.port}'}/console/approvals"
    return ApprovalDesk(
        ApprovalSeal(seal, ttl_s=settings.auth.approval_ttl_s),
        used,
        report,
        waiting=WaitingCalls(time),
        new_id=partial(secrets.token_hex, 8),
        peers=peers,
        stands=stands,
        page=page if server.console else "",
    )


def _used_approvals(file: Path | None, measures: StorageMeasures | None, redis: "RedisLink | None") -> OnceStore:
    if redis is not None:
        from wicketgate.storage.redis.once import RedisOnceStore

        return RedisOnceStore(redis, time)
    if file:
        from wicketgate.storage.sqlite_once import SQLiteOnceStore

        return SQLiteOnceStore(file, time, measures)
    return MemoryOnceStore(time)


def reseal(seal: Seal, desk: ApprovalDesk, settings: AuthSettings) -> None:
    """Puts the configured keys in force, and who is one person. What was sealed under a key that is not configured any
    more is void."""
    desk.persons.replace(settings.same_person)
    seal.replace_keys(settings.ring())
    desk.sealed.seal = ApprovalSeal(seal, ttl_s=settings.approval_ttl_s)

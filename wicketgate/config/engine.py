"""Makes the chat engine's parts from the settings: model, window, limits, approvals, and runs that clients resume."""

import logging
import random
import secrets
from collections.abc import Iterator
from functools import partial
from time import monotonic, time

from wicketgate.access.identity import Standing, always_good
from wicketgate.access.seal import ApprovalSeal, Seal
from wicketgate.config.runtime import call_policies
from wicketgate.config.settings import AuthSettings, ModelChoice, ModelSettings, Settings
from wicketgate.context.build import CountedTexts
from wicketgate.engine.approval_desk import ApprovalDesk
from wicketgate.engine.approvals import Report
from wicketgate.engine.fallback import Candidate, FallbackProvider, Patience
from wicketgate.engine.keyed_runs import KeyedRuns, ResumeLimits
from wicketgate.engine.limits import DetachedRuns, StreamLimit
from wicketgate.engine.loop import Engine
from wicketgate.engine.tool_rounds import EngineLimits
from wicketgate.engine.turn import ModelWindow
from wicketgate.models.endpoint import ModelAddress, Timeouts
from wicketgate.models.provider import Provider
from wicketgate.models.watched import ModelPrices, WatchedModels
from wicketgate.net import Outgoing
from wicketgate.storage.flows import StoredFlows
from wicketgate.storage.journal import StoredJournal
from wicketgate.storage.measures import StorageMeasures
from wicketgate.storage.memory_runs import MemoryRuns
from wicketgate.storage.process import Process
from wicketgate.storage.runs import JournalBounds, SharedRuns
from wicketgate.storage.store import Store
from wicketgate.storage.used_approvals import UsedApprovals
from wicketgate.storage.waiting_approvals import StoredWaitingCalls
from wicketgate.tokens import TokenCounter

log = logging.getLogger("wicketgate.approvals")

STALL_S = 300.0
"""The longest time between events of a model's answer; keep-alives do not count."""
DETACHED_S = 600.0
"""The longest time that a run goes on without a reader (``on_disconnect: continue``)."""
RUN_BYTES = 1024 * 1024
"""Events that are kept of one run."""


def make_provider(settings: ModelSettings, outgoing: Outgoing, models: WatchedModels | None = None) -> Provider:
    """Makes the configured model with its fallbacks; *models* counts their turns. Raises ConfigError."""
    models = models or WatchedModels(monotonic)
    if settings.provider == "scripted" and not settings.fallbacks:
        return _watched(settings, _provider(settings, settings, outgoing, settings.context_tokens), models)
    return FallbackProvider(
        list(_candidates(settings, outgoing, models)),
        Patience(settings.attempts),
        now=monotonic,
        chance=random.random,
    )


def each_model(settings: ModelSettings, outgoing: Outgoing) -> Iterator[tuple[str, ModelChoice, Provider]]:
    """Yields each configured model: its place in the settings, the settings, and a provider that asks it alone."""
    for number, choice in enumerate((settings, *settings.fallbacks)):
        place = f"model.fallbacks[{number - 1}]" if number else "model"
        yield place, choice, _provider(choice, settings, outgoing, choice.context_tokens or settings.context_tokens)


def model_name(choice: ModelChoice) -> str:
    return choice.model or choice.provider


def _candidates(settings: ModelSettings, outgoing: Outgoing, models: WatchedModels) -> Iterator[Candidate]:
    for number, choice in enumerate((settings, *settings.fallbacks)):
        window = choice.context_tokens or settings.context_tokens
        # Numbered, since two may be the same model under different keys.
        name = f"model {model_name(choice)}" + (f" (fallback {number})" if number else "")
        yield Candidate(name, _watched(choice, _provider(choice, settings, outgoing, window), models), window)


def _watched(choice: ModelChoice, provider: Provider, models: WatchedModels) -> Provider:
    """Servers that speak another provider's dialect have the ``gen_ai.provider.name`` of that one."""
    system = {"anthropic-messages": "anthropic", "openai-chat": "openai"}.get(choice.provider, "wicketgate")
    return models.watched(model_name(choice), provider, system, prices_of(choice))


def prices_of(choice: ModelChoice) -> ModelPrices | None:
    return None if choice.prices is None else choice.prices.made()


def _provider(choice: ModelChoice, settings: ModelSettings, outgoing: Outgoing, context_tokens: int) -> Provider:
    if choice.provider == "scripted":
        from wicketgate.models.scripted.model import ScriptedModel

        return ScriptedModel()
    api_key = choice.api_key.get_secret_value() if choice.api_key else None
    timeouts = Timeouts(settings.first_event_timeout_s, settings.idle_timeout_s, STALL_S)
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
    store: Store,
    process: Process,
    measures: StorageMeasures | None = None,
) -> KeyedRuns:
    """Makes the runs with a key, and their journal in *store*."""
    resume = settings.engine.resume
    limits = ResumeLimits(resume.grace_s, DETACHED_S, settings.engine.on_disconnect)
    bounds = JournalBounds(run_bytes=RUN_BYTES, unread_bytes=RUN_BYTES // 4, keep_s=resume.keep_s)
    runs: SharedRuns = MemoryRuns(store, process.id, bounds)
    if settings.storage.is_shared:
        runs = SharedRuns(store, process.id, bounds, measures)
    journal = StoredJournal(runs, process)
    return KeyedRuns(engine, journal, streams, detached, limits, partial(secrets.token_hex, 6))


def make_seal(settings: AuthSettings, own_key: bytes) -> Seal:
    """Makes the seal. Without ``seal_keys`` its key is *own_key*, and what it seals is void when the service ends."""
    return Seal(settings.ring(), own_key, time, lambda: secrets.token_urlsafe(12))


def make_approval_desk(
    settings: Settings,
    seal: Seal,
    store: Store,
    measures: StorageMeasures,
    report: Report | None = None,
    stands: Standing = always_good,
) -> ApprovalDesk:
    """Makes the desk, which keeps its list and used approvals in *store*, and reports decisions to *report*.

    Logs a warning if a restart would lose approvals that are meant to last.
    """
    kept = settings.storage.url != "memory://"
    if settings.auth.seal_keys and not kept:
        log.warning(
            "approvals survive a restart, but the record of used ones does not: set storage.url to a file or a Redis"
        )
    if not settings.auth.seal_keys and kept and any(rule.approval != "never" for rule in settings.access):
        log.warning("approvals are lost when this service stops, because auth.seal_keys is not set")
    server = settings.server
    page = f"{server.public_url or f'http://localhost:{server.port}'}/console/approvals"
    return ApprovalDesk(
        ApprovalSeal(seal, ttl_s=settings.auth.approval_ttl_s),
        UsedApprovals(store, time, measures),
        report,
        waiting=StoredWaitingCalls(store, seal, time, partial(secrets.token_hex, 8), measures),
        now=time,
        stands=stands,
        page=page if server.console else "",
        flows=StoredFlows(store),
    )


def reseal(seal: Seal, desk: ApprovalDesk, settings: AuthSettings) -> None:
    """Puts the configured keys in force, and who is one person. What was sealed under a key that is not configured any
    more is void."""
    desk.persons.replace(settings.same_person)
    seal.replace_keys(settings.ring())
    desk.sealed.seal = ApprovalSeal(seal, ttl_s=settings.approval_ttl_s)

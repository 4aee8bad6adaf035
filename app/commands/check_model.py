"""``wicketgate check --model``: one tiny request to each configured model, and the setting that mends a failure
(OPS-108, OPS-109)."""

import asyncio
import json
import re
import secrets
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass
from urllib.parse import urlsplit

from app.commands.output import printable
from wicketgate.catalog.card import one_line
from wicketgate.config.engine import each_model
from wicketgate.config.settings import ModelChoice, ModelSettings, Settings
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.errors import ContextOverflow, EngineError, ProviderError, ProviderSilent, ProviderUnavailable
from wicketgate.log_text import Redactor
from wicketgate.models.provider import ModelRequest, Provider

_MOST_TOKENS = 16
_ASKED = "Say ok."
_MAX_WORDS = 300
_ANSWERED = re.compile(r"the provider answered \d{3}(?: \([^()]*\))?: ?")
_UNKNOWN_MODEL = re.compile(
    r"model[\w\s'\"`:./-]{0,120}(?:not found|not exist|does not|unknown|invalid|not supported|no access)"
    r"|(?:unknown|invalid|no such|unsupported|not a valid) model|model_not_found",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"quota|credit|billing|balance|funds", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelTrial:
    """*setting* is the place of the model in the configuration. *error* is what came back, *mend* what to do."""

    setting: str
    provider: str
    model: str
    ok: bool
    seconds: float = 0.0
    error: str = ""
    mend: str = ""

    @property
    def line(self) -> str:
        """The fault, on one line."""
        return f"{self.setting} ({self.model or self.provider}): {self.error}. {self.mend}"


async def try_models(settings: Settings) -> list[ModelTrial]:
    """Asks the model and its fallbacks at the same time, each once. Raises ConfigError."""
    redact = Redactor(settings.secrets())
    models = list(each_model(_small(settings.model), outgoing_rules(settings)))
    return list(await asyncio.gather(*(_try(place, choice, provider, redact) for place, choice, provider in models)))


async def _try(place: str, choice: ModelChoice, provider: Provider, redact: Redactor) -> ModelTrial:
    if choice.provider == "scripted":
        told = "a script, which answers without a model; set model.provider for a real one"
        await provider.aclose()
        return ModelTrial(place, choice.provider, "", ok=True, mend=told)
    now = asyncio.get_running_loop().time
    request = ModelRequest([{"role": "user", "content": _ASKED}], (), f"check_{secrets.token_hex(8)}")
    began = now()
    try:
        async with aclosing(provider.stream(request)) as events:
            async for _ in events:
                pass
    except EngineError as failure:
        error, mend = explain_failure(place, choice, failure)
        shown = printable(one_line(redact(error)))[:_MAX_WORDS]
        seconds = round(now() - began, 3)
        return ModelTrial(place, choice.provider, choice.model, ok=False, seconds=seconds, error=shown, mend=mend)
    finally:
        await provider.aclose()
    return ModelTrial(place, choice.provider, choice.model, ok=True, seconds=round(now() - began, 3))


def explain_failure(place: str, choice: ModelChoice, failure: EngineError) -> tuple[str, str]:
    """Returns what came back, and the setting of the model at *place* that mends it."""
    words = _words(str(failure))
    status = (failure.status if isinstance(failure, ProviderError) else None) or 0
    said = f"HTTP {status}{f': {words}' if words else ''}" if status else words
    address = _without_password(choice.base_url)
    if isinstance(failure, ProviderError) and failure.unreached:
        mend = failure.mend.replace("{setting}", f"{place}.base_url")
        return f"{failure.unreached} ({address})", mend[:1].upper() + mend[1:]
    if isinstance(failure, ProviderSilent):
        return "no answer in time", "Is the model still being loaded? model.first_event_timeout_s bounds the wait"
    unknown = bool(_UNKNOWN_MODEL.search(words) or (choice.model and choice.model in words))
    url, paths = f"{place}.base_url ({address})", _paths(choice)
    # The first row that applies.
    mends: Iterable[tuple[bool, str]] = (
        (status in (401, 403) and choice.api_key is None, f"Set {place}.api_key: none is set"),
        (status == 401, f"Set {place}.api_key to a valid key"),
        (status == 403, f"May the key in {place}.api_key use {place}.model?"),
        (status == 402, f"The account of {place}.api_key has no credit"),
        (status == 429 and bool(_QUOTA.search(words)), f"The account of {place}.api_key has used up its quota"),
        (status == 429, "The provider limits requests at the moment; try again later"),
        (status in (400, 404, 422) and unknown, f"Set {place}.model to a model that this provider has"),
        (status in (400, 422), f"Are {place}.extra and {place}.dialect right for this provider?"),
        (status in (404, 405), f"Is {url} right? {paths}"),
        (300 <= status < 400, f"{url} redirects: set it to the final address"),
        (status >= 500, "The provider has failed; try again later, or set model.fallbacks"),
        (isinstance(failure, ContextOverflow), f"Is {place}.context_tokens right?"),
        (isinstance(failure, ProviderUnavailable), f"Is {url} right, and does the provider run?"),
        (True, f"Is {url} right, and does it speak {choice.provider}? {paths}"),
    )
    return said, next(mend for applies, mend in mends if applies)


def _small(settings: ModelSettings) -> ModelSettings:
    """*settings* with short answers. A budget for thinking is part of the bound, so it is left where there is one."""
    fallbacks = tuple(
        each if "thinking" in each.extra else each.model_copy(update=_SHORT) for each in settings.fallbacks
    )
    small = settings.model_copy(update={"fallbacks": fallbacks})
    return small if "thinking" in settings.extra else small.model_copy(update=_SHORT)


_SHORT = {"max_tokens": _MOST_TOKENS}


def _words(text: str) -> str:
    """The provider's own sentence, where its answer is JSON of the usual shapes; otherwise the beginning."""
    text = _ANSWERED.sub("", text, count=1)
    try:
        body = json.loads(text)
    except ValueError:
        return re.sub(r"<[^<>]{0,200}>", " ", text).strip()[:_MAX_WORDS]
    body = body[0] if isinstance(body, list) and body else body
    for key in ("error", "message", "detail", "msg"):
        if isinstance(body, dict) and body.get(key):
            body = body[key]
    return (body if isinstance(body, str) else json.dumps(body))[:_MAX_WORDS]


def _paths(choice: ModelChoice) -> str:
    root = _without_password(choice.base_url).rstrip("/")
    if choice.provider == "anthropic-messages":
        return f"The request went to {root.removesuffix('/v1')}/v1/messages"
    more = "; most providers want /v1 at its end" if not urlsplit(root).path else ""
    return f"The request went to {root}/chat/completions{more}"


def _without_password(url: str) -> str:
    return re.sub(r"://[^/@]*@", "://", url).partition("?")[0]

"""Examines one engine: the prompt twice, every probe, then the grammar over all streams that were seen."""

from urllib.parse import urlsplit

from app.conform import bodies
from app.conform.bodies import DEFAULT_PROMPT
from app.conform.client import EngineClient
from app.conform.grammar import RULES, judge_streams
from app.conform.probes import PROBES, Session
from app.conform.report import Finding, Report
from app.conform.transcript import Stream, read_stream


class CannotExamine(Exception):
    """There is no engine there that would answer; the text says what to do."""


async def examine(
    url: str,
    key: str | None = None,
    *,
    prompt: str = DEFAULT_PROMPT,
    tool_prompt: str | None = None,
    timeout_s: float = 60.0,
    large_bytes: int = 20_000_000,
) -> Report:
    """Asks some forty times. *url* is the engine's root. *large_bytes* is the body that must be too large. Raises
    CannotExamine."""
    _check(url, key)
    async with EngineClient(url.rstrip("/").removesuffix("/engine/chat"), key, timeout_s).opened() as client:
        session = Session(client, prompt, tool_prompt, large_bytes, *[await _answer(client, prompt) for _ in range(2)])
        findings = [Finding(requirement, await probe(session)) for requirement, probe in PROBES]
        streams = client.streams()
        findings += [Finding(requirement, judge_streams(check, streams)) for requirement, check in RULES]
        return Report(client.url, findings)


def _check(url: str, key: str | None) -> None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CannotExamine("The URL must be the root of an engine, such as http://127.0.0.1:8080")
    if key is not None and not (key.isascii() and key.isprintable()):
        raise CannotExamine("The key holds a character that cannot stand in a header, perhaps a line end")


async def _answer(client: EngineClient, prompt: str) -> Stream:
    exchange = await client.chat("the prompt", bodies.body(prompt))
    if exchange.is_stream and exchange.broken.startswith("not at its end"):
        raise CannotExamine(f"The answer of {client.url} was {exchange.broken}; give more time with --timeout")
    if exchange.is_stream:
        return read_stream(exchange)
    if exchange.status == 0:
        raise CannotExamine(f"No answer from {client.url}: {exchange.broken}")
    if exchange.status in (401, 403):
        raise CannotExamine(f"{client.url} refused the credential ({exchange.status}); give one with --key")
    raise CannotExamine(
        f"{client.url} answered a good request with {exchange.status} {exchange.media_type}, not with a stream"
    )

"""Tells a webhook of each call that begins to wait for an approval (OPS-567)."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from wicketgate.access.approvers import described
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.engine.waiting_calls import WaitingCall
from wicketgate.gate import Gate
from wicketgate.net import HttpClient
from wicketgate.task_end import end_tasks

log = logging.getLogger("wicketgate.approvals")

_MOST_WAITING = 100
_MOST_KNOWN = 1_000
_ANSWER_S = 5.0


@asynccontextmanager
async def approval_webhook(gate: Gate) -> AsyncIterator[None]:
    """Sends what this process puts on the list. A message that cannot be sent is logged and not repeated."""
    configured = gate.settings.auth.approval_webhook
    if configured is None:
        yield
        return
    url, messages = configured.get_secret_value(), asyncio.Queue[str](_MOST_WAITING)
    # A call that is made again while it waits is no news.
    known: dict[str, None] = {}

    def asked(call: WaitingCall, handle: str) -> None:
        if handle in known or messages.full():
            return
        known[handle] = None
        if len(known) > _MOST_KNOWN:
            del known[next(iter(known))]
        by = described(call.needs) or "its caller"
        where = gate.approvals.page or "wicketgate approvals list"
        messages.put_nowait(f"{call.actor} waits for an approval of {call.tool_id} by {by}: {where}")

    async def send() -> None:
        timeout = httpx.Timeout(_ANSWER_S)
        async with HttpClient(outgoing_rules(gate.settings), timeout=timeout) as http:
            while True:
                text = await messages.get()
                try:
                    (await http.post(url, json={"text": text})).raise_for_status()
                except (httpx.HTTPError, httpx.InvalidURL) as error:
                    # Its text may have the URL, which is a secret.
                    log.warning("the webhook of approvals does not answer: %s", type(error).__name__)

    gate.approvals.on_waiting = asked
    sending = asyncio.create_task(send(), name="webhook of approvals")
    try:
        yield
    finally:
        await end_tasks(sending)

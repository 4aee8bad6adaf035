"""JSON between processes of a service."""

import asyncio
import json
from typing import Any

from wicketgate.peers import Payload
from wicketgate.results.firewall import is_bulky


async def as_payload(value: Any) -> Payload:
    """*value*, as decoded from JSON, for a peer. MessagePack takes no half of a surrogate pair."""
    return {"json": await written(value)}


def from_payload(payload: Payload) -> Any:
    """Raises ValueError."""
    return json.loads(payload["json"])


async def written(value: Any) -> bytes:
    if is_bulky(value):
        return (await asyncio.to_thread(json.dumps, value, default=dict)).encode()
    return json.dumps(value, default=dict).encode()

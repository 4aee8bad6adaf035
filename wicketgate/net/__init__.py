"""The one way out: httpx over our own transport, for models, OpenAPI, tokens, keys and MCP.

``HttpClient(outgoing)`` makes a client. ``fetch`` sends one request and reads its answer, bounded;
``client.transport.send(Target(...), ...)`` is the cheap way for many requests to one URL.
"""

from wicketgate.net.challenge import Refusal
from wicketgate.net.client import Credentials, HttpClient, Reply, fetch, origin
from wicketgate.net.outgoing import NeverSent, NoAnswer, Outgoing
from wicketgate.net.transport import Target, body_of

__all__ = [
    "Credentials", "HttpClient", "NeverSent", "NoAnswer", "Outgoing", "Refusal", "Reply", "Target", "body_of", "fetch",
    "origin",
]  # fmt: skip

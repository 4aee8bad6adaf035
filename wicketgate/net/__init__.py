"""The one way out: httpx over one transport of ours, for models, OpenAPI, tokens, keys and MCP.

``make_http_client(outgoing)`` makes a client. ``fetch`` sends one request and reads its answer, bounded;
``client.transport.send(Target(...), ...)`` is the cheap way for many requests to one URL.
"""

from wicketgate.net.challenge import Refusal, refusal_of
from wicketgate.net.client import (
    CONNECT_S,
    Credentials,
    HttpClient,
    Reply,
    fetch,
    make_http_client,
    origin,
    redirect_of,
    send_authorized,
)
from wicketgate.net.connection import MAX_HEAD_BYTES
from wicketgate.net.guard import Guard
from wicketgate.net.outgoing import (
    AddressRefused,
    AnswerAbandoned,
    AnswerBroken,
    AnswerTimedOut,
    AnswerTooLarge,
    AnswerUndecodable,
    CannotConnect,
    CertificateRefused,
    ConnectTimedOut,
    NeverSent,
    NoAnswer,
    NotSendable,
    Outgoing,
    Proxies,
    ProxyFailed,
    SchemeRefused,
)
from wicketgate.net.transport import MAX_BODY_BYTES, Body, Target, Transport, body_of, read_bounded

__all__ = [
    "CONNECT_S",
    "MAX_BODY_BYTES",
    "MAX_HEAD_BYTES",
    "AddressRefused",
    "AnswerAbandoned",
    "AnswerBroken",
    "AnswerTimedOut",
    "AnswerTooLarge",
    "AnswerUndecodable",
    "Body",
    "CannotConnect",
    "CertificateRefused",
    "ConnectTimedOut",
    "Credentials",
    "Guard",
    "HttpClient",
    "NeverSent",
    "NoAnswer",
    "NotSendable",
    "Outgoing",
    "Proxies",
    "ProxyFailed",
    "Refusal",
    "Reply",
    "SchemeRefused",
    "Target",
    "Transport",
    "body_of",
    "fetch",
    "make_http_client",
    "origin",
    "read_bounded",
    "redirect_of",
    "refusal_of",
    "send_authorized",
]

"""The errors of an outgoing request. Each is an httpx error, so that code written for httpx catches them.

They tell one thing that httpx does not: ``NeverSent`` is raised if and only if no byte of the request was written to
the server's connection. All others mean that the server may have acted on the request. Texts are for the log.
"""

import httpx


class NeverSent(Exception):
    """Marks an error after which the request can be repeated: the server has seen nothing of it."""


class CannotConnect(NeverSent, httpx.ConnectError):
    """No connection came about: no such name, no route, refused, or TLS failed."""


class CertificateRefused(CannotConnect):
    """The certificate of the server or of the proxy is not trusted."""


class ConnectTimedOut(NeverSent, httpx.ConnectTimeout):
    """No connection came about in time, TLS and proxy included."""


class ProxyFailed(NeverSent, httpx.ProxyError):
    """The proxy opened no tunnel, or its setting cannot be used."""


class NotSendable(NeverSent, httpx.LocalProtocolError):
    """The request itself cannot be written as HTTP."""


class SchemeRefused(NeverSent, httpx.UnsupportedProtocol):
    """The URL is neither http nor https, or has no host."""


class NoAnswer(httpx.ReadError):
    """The connection ended after the request was written and before any answer."""


class AnswerTimedOut(httpx.ReadTimeout):
    """The answer did not begin in time, or fell silent for too long. The connection is closed."""


class AnswerBroken(httpx.RemoteProtocolError):
    """The answer is not HTTP, or ended before it was whole."""


class AnswerTooLarge(httpx.RemoteProtocolError):
    """The head or the body of the answer is over its bound."""


class AnswerUndecodable(httpx.DecodingError):
    """The body has a content coding that is not understood, or does not hold to it."""


class AnswerAbandoned(httpx.ReadError):
    """The answer was read after its response was closed, or its client was closed during the reading."""

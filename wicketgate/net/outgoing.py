"""The rules that hold for all outgoing connections (trusted certificates, proxies), and the errors of a request
(UP-39, UP-40, UP-42).

Trusted are the system's certificates, with ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` as OpenSSL reads them, or certifi's
where the system has none, and those of a private CA file. Proxies come from the environment; loopback addresses are
always connected to directly.

Each error is an httpx error, so that code written for httpx catches them. They say one thing that httpx does not:
``NeverSent`` is raised if and only if no byte of the request was written to the server's connection. All others mean
that the server may have acted on the request. Texts are for the log.

What went wrong is told in two parts (UP-67): a fixed phrase that any caller may read, and for the operator what was
tried and which setting mends it.
"""

import asyncio
import errno
import os
import re
import ssl
import threading
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path
from socket import gaierror, inet_aton
from urllib.parse import unquote_to_bytes, urlsplit

import certifi
import httpx

from wicketgate.net.addresses import unmapped
from wicketgate.net.guard import Guard, is_loopback

_SETTING = "{setting}"


@dataclass(frozen=True, slots=True)
class Trouble:
    """*why* is a fixed phrase that may be shown to anyone. *mend* is for the operator; ``{setting}`` stands in it for
    the setting that holds the URL."""

    why: str
    mend: str = ""

    def mend_for(self, setting: str) -> str:
        return self.mend.replace(_SETTING, setting)

    def told(self, url: str, setting: str) -> str:
        """The whole for the operator, with the origin of *url*."""
        return told(self.why, shown_origin(url), self.mend_for(setting))


def told(why: str, tried: str, mend: str) -> str:
    return f"{why}{f' ({tried})' if tried else ''}{f': {mend}' if mend else ''}"


def shown_origin(url: str) -> str:
    """Scheme, host and port of *url*; never its user, path or query. Empty if it is no URL."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return ""
    if not parts.scheme or not host:
        return ""
    name = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{name}{f':{port}' if port is not None else ''}"


NOT_REACHED = Trouble("it cannot be reached", "is the host in {setting} right?")
_REFUSED = Trouble("it refuses connections", "start it, or correct the port in {setting}")
_NO_NAME = Trouble("its name does not resolve", "correct the host in {setting}, or the DNS settings of this machine")
_NO_ROUTE = Trouble(
    "there is no route to it",
    "look at the network of this machine; is a proxy needed (HTTPS_PROXY), or the host wrong?",
)
_TOO_SLOW = Trouble(
    "no connection could be made in time", "is a firewall between, or the host or port in {setting} wrong?"
)
_PLAIN = Trouble("it speaks http, not https", "write http:// in {setting}, or the port of https")
SPEAKS_TLS = Trouble("it speaks https, not http", "write https:// in {setting}")
_TLS_CUT = Trouble(
    "it ended the connection when TLS began", "if it speaks plain http, write http:// in {setting}; is the port right?"
)
_TLS_ODD = Trouble("its TLS cannot be used", "it has no TLS version or cipher in common with the gate")
_NO_ANSWER = Trouble("it closed the connection without an answer", "if it speaks https, write https:// in {setting}")
_NOT_HTTP = Trouble("it does not speak HTTP", "is the port in {setting} right?")
_UNTRUSTED = Trouble(
    "it has a certificate that is not trusted here", "name the file of its certificate authority in network.ca_file"
)
_OTHER_NAME = Trouble("its certificate is for another name", "write the host in {setting} as its certificate names it")
_EXPIRED = Trouble("its certificate has expired", "it has to be renewed at the server; is the clock here right?")
_NOT_YET = Trouble("its certificate is not valid yet", "is the clock right, here and at the server?")
_NO_FILES = Trouble("too many files are open here", "raise the limit of open files (ulimit -n)")
NO_CA = Trouble("its certificate cannot be checked here", "network.ca_file cannot be read, or holds no certificate")
_NO_PROXY = "the proxy refused the connection"
_NOT_PUBLIC = Trouble("it is not at a public address", "if it is yours, name its host in oauth.private_hosts")


class NeverSent(Exception):
    """Marks an error after which the request can be repeated: the server has seen nothing of it."""

    trouble = NOT_REACHED

    @property
    def why(self) -> str:
        """A fixed phrase that may be shown."""
        return self.trouble.why


class CannotConnect(NeverSent, httpx.ConnectError):
    """No connection came about: no such name, no route, refused, or TLS failed."""

    def __init__(self, text: str, trouble: Trouble = NOT_REACHED) -> None:
        super().__init__(text)
        self.trouble = trouble


class AddressRefused(CannotConnect):
    """A host that was named by a stranger has no address that the guard allows."""

    def __init__(self) -> None:
        super().__init__("no address of the host is a public one", _NOT_PUBLIC)


class ConnectTimedOut(NeverSent, httpx.ConnectTimeout):
    """No connection came about in time, TLS and proxy included."""

    trouble = _TOO_SLOW


class ProxyFailed(NeverSent, httpx.ProxyError):
    """The proxy opened no tunnel, or its setting cannot be used. *mend* names the variable of the setting."""

    def __init__(self, text: str, mend: str = "") -> None:
        super().__init__(text)
        self.trouble = Trouble(_NO_PROXY, mend or text)


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


class NotHttp(AnswerBroken):
    """The first bytes of the answer are not HTTP. *speaks_tls*: they are TLS."""

    def __init__(self, text: str, *, speaks_tls: bool) -> None:
        super().__init__(text)
        self.speaks_tls = speaks_tls


class AnswerTooLarge(httpx.RemoteProtocolError):
    """The head or the body of the answer is over its bound."""


class AnswerUndecodable(httpx.DecodingError):
    """The body has a content coding that is not understood, or does not hold to it."""


class AnswerAbandoned(httpx.ReadError):
    """The answer was read after its response was closed, or its client was closed during the reading."""


def trouble_of(error: Exception) -> Trouble:
    """The trouble behind an error of a request, of the operating system or of TLS."""
    match error:
        case NeverSent(trouble=trouble):
            return trouble
        case NotHttp(speaks_tls=speaks_tls):
            return SPEAKS_TLS if speaks_tls else _NOT_HTTP
        case NoAnswer():
            return _NO_ANSWER
        case TimeoutError():
            return _TOO_SLOW
        case OSError(errno=errno.EMFILE | errno.ENFILE):
            return _NO_FILES
        case gaierror() | UnicodeError():
            return _NO_NAME
        case ssl.SSLCertVerificationError(verify_code=code):
            return _CERTIFICATES.get(code, _UNTRUSTED)
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ConnectionResetError() | ConnectionAbortedError():
            return _TLS_CUT
        case ssl.SSLError(reason=reason):
            return _PLAIN if reason in _NOT_TLS else _TLS_ODD
        case ConnectionRefusedError():
            return _REFUSED
        case OSError(errno=errno.ENETUNREACH | errno.EHOSTUNREACH | errno.ENETDOWN | errno.EHOSTDOWN):
            return _NO_ROUTE
        case _:
            return NOT_REACHED


# What OpenSSL calls an answer in plain text to its greeting, by its releases.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "RECORD_LAYER_FAILURE", "UNEXPECTED_MESSAGE")
# X509_V_ERR_CERT_NOT_YET_VALID, _CERT_HAS_EXPIRED, _HOSTNAME_MISMATCH, _IP_ADDRESS_MISMATCH.
_CERTIFICATES = {9: _NOT_YET, 10: _EXPIRED, 62: _OTHER_NAME, 64: _OTHER_NAME}

# nginx and Go, then Apache.
_WANTS_TLS = re.compile(
    rb"(?i)http request (?:was )?(?:sent )?to (?:an )?https (?:port|server)|plain http to an ssl-enabled server"
)


def wants_tls(status: int, body: bytes) -> bool:
    """True for the answer by which common servers refuse plain http on their https port."""
    return status == 400 and _WANTS_TLS.search(body[:4096]) is not None


Origin = tuple[str, str, int]
"""Scheme, host in lower case without brackets, port."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """*credentials* is the value of ``Proxy-Authorization``, or empty. *variable* names the setting."""

    scheme: str
    host: str
    port: int
    credentials: bytes = field(default=b"", repr=False)
    variable: str = ""


@dataclass(frozen=True, slots=True)
class Proxies:
    """The settings as they were written, by scheme of the URL, with the name of the variable for error texts."""

    http: tuple[str, str] = field(default=("", ""), repr=False)
    https: tuple[str, str] = field(default=("", ""), repr=False)
    no_proxy: tuple[str, ...] = ()

    def proxy_for(self, origin: Origin) -> Proxy | None:
        """Raises ProxyFailed where the setting cannot be used."""
        scheme, written, port = origin
        host = written.rstrip(".")  # a name with a dot at its end is the same name
        variable, url = self.https if scheme == "https" else self.http
        if not url or _is_loopback(host) or any(_exempts(entry, host, port) for entry in self.no_proxy):
            return None
        return _read_proxy(variable, url)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """The default trusts what the system trusts and uses no proxy. A *guard* judges the addresses of servers."""

    ca_file: str = ""
    proxies: Proxies = Proxies()
    guard: Guard | None = None

    @staticmethod
    def from_environment(environ: Mapping[str, str], ca_file: str = "") -> "Outgoing":
        """Read the proxy variables, in lower case before upper case as curl does."""

        def value(*names: str) -> tuple[str, str]:
            for name in names:
                for spelling in (name, name.upper()):
                    if spelling in environ:
                        return spelling, environ[spelling].strip()
            return "", ""

        no_proxy = value("no_proxy")[1].replace(",", " ").split()
        http, https = value("http_proxy", "all_proxy"), value("https_proxy", "all_proxy")
        return Outgoing(ca_file, Proxies(http, https, tuple(entry.lower() for entry in no_proxy)))

    def check(self) -> None:
        """Raises OSError unless the CA file, if one is named, holds certificates."""
        if self.ca_file:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.ca_file)

    async def tls(self) -> ssl.SSLContext:
        """The TLS context of all connections under these rules. Raises OSError if the CA file cannot be read."""
        key = self._key()
        context = _contexts.get(key)
        # Reading the certificates takes 20 ms and more.
        return await asyncio.to_thread(self._made_once, key) if context is None else context

    def make_tls(self) -> ssl.SSLContext:
        """A new TLS context. Raises OSError if the CA file cannot be read or holds no certificate."""
        context = ssl.create_default_context()
        if not _system_has_certificates(context):
            context.load_verify_locations(certifi.where())
        if self.ca_file:
            context.load_verify_locations(self.ca_file)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _made_once(self, key: tuple[object, ...]) -> ssl.SSLContext:
        with _making:
            if key not in _contexts:
                _contexts[key] = self.make_tls()
            return _contexts[key]

    def _key(self) -> tuple[object, ...]:
        """Another file, or another content, is another context."""
        try:
            stat = Path(self.ca_file).stat() if self.ca_file else None
        except OSError:
            stat = None
        mark = (stat.st_mtime_ns, stat.st_size, stat.st_ino) if stat is not None else None
        return self.ca_file, mark, os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")


_contexts: dict[tuple[object, ...], ssl.SSLContext] = {}
_making = threading.Lock()


def _system_has_certificates(context: ssl.SSLContext) -> bool:
    if context.cert_store_stats()["x509_ca"]:
        return True
    # Those of a folder are read when a server names their issuer.
    folder = ssl.get_default_verify_paths().capath
    return folder is not None and any(Path(folder).iterdir())


def _address(host: str) -> IPv4Address | IPv6Address | None:
    """The address that *host* is, also in the spellings of IPv4 that the system reads, such as ``127.1``."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    try:
        return IPv4Address(inet_aton(host))
    except (OSError, ValueError):
        return None


def _is_loopback(host: str) -> bool:
    """True for this machine: the address of no interface (``0.0.0.0``) reaches it too."""
    if is_loopback(host):
        return True
    address = _address(host)
    return address is not None and (unmapped(address).is_loopback or unmapped(address).is_unspecified)


def _exempts(entry: str, host: str, port: int) -> bool:
    """True if the *entry* of NO_PROXY covers the host: ``*``, a name and those below it, an address, a network; each
    with a port or without."""
    if entry == "*":
        return True
    name, colon, number = entry.rpartition(":")
    if colon and number.isdigit() and (":" not in name or name.endswith("]")):
        if int(number) != port:
            return False
        entry = name
    entry = entry.removeprefix("[").removesuffix("]")
    address = _address(host)
    if address is not None:
        try:
            return address in ip_network(entry, strict=False)
        except ValueError:
            pass
    entry = entry.removeprefix("*").removeprefix(".").removesuffix(".")
    return bool(entry) and (host == entry or host.endswith(f".{entry}"))


def _read_proxy(variable: str, url: str) -> Proxy:
    """Raises ProxyFailed with a text that names the variable and never its value."""
    if "://" not in url:
        url = f"http://{url}"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise ProxyFailed(f"{variable} is not a URL") from None
    if parts.scheme.startswith("socks"):
        raise ProxyFailed(f"{variable} names a SOCKS proxy; set an http or https proxy")
    if parts.scheme not in ("http", "https") or not host:
        raise ProxyFailed(f"{variable} must be an http or https URL, such as http://proxy.example.com:3128")
    credentials = b""
    if parts.username is not None or parts.password is not None:
        pair = unquote_to_bytes(parts.username or "") + b":" + unquote_to_bytes(parts.password or "")
        credentials = b"Basic " + b64encode(pair)
    return Proxy(parts.scheme, host, port or (443 if parts.scheme == "https" else 80), credentials, variable)

"""TLS at the port, with certificates that are read again when their files change (OPS-571)."""

import logging
import ssl
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import monotonic

from wicketgate.config.settings import TlsSettings
from wicketgate.errors import ConfigError

log = logging.getLogger("wicketgate.http")

HANDSHAKE_S = 10.0
_LOOK_EVERY_S = 5.0


class Certificates:
    """The context of new connections. Making it raises ConfigError for files that cannot be used."""

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._files = [Path(file) for file in (settings.cert, settings.key, settings.client_ca) if file]
        self._seen = self._times()
        self._context = self._load()
        self._looked = monotonic()

    def context(self) -> ssl.SSLContext:
        """Looks at the files every five seconds. If new ones cannot be used, the old ones stay, and the log says so."""
        if monotonic() - self._looked >= _LOOK_EVERY_S:
            self._looked = monotonic()
            if (times := self._times()) != self._seen:
                self._seen = times
                try:
                    self._context = self._load()
                    log.info("the certificates of server.tls were read again")
                except ConfigError as error:
                    log.error("the certificates of before stay in use: %s", error)
        return self._context

    def _times(self) -> Sequence[float]:
        times = []
        for file in self._files:
            with suppress(OSError):
                times.append(file.stat().st_mtime)
        return times

    def _load(self) -> ssl.SSLContext:
        settings = self._settings
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password an encrypted key fails, in place of a question at the terminal.
            context.load_cert_chain(settings.cert, settings.key, password="")
        except (OSError, ValueError):
            raise ConfigError("server.tls: cert and key are no readable PEM files that belong together") from None
        if settings.client_ca:
            try:
                context.load_verify_locations(settings.client_ca)
            except (OSError, ValueError):
                raise ConfigError("server.tls.client_ca is no readable PEM file of certificates") from None
            context.verify_mode = ssl.CERT_REQUIRED
        return context

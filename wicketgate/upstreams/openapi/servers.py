"""Where the operations of a document are called when the operator does not say (OpenAPI "Server Object")."""

import re
from collections.abc import Mapping
from urllib.parse import urljoin, urlsplit

from wicketgate.upstreams.openapi.document import Document, DocumentRefused


def server_url(document: Document, document_url: str) -> str:
    """The first server, its variables at their defaults. *document_url* is empty for a file.

    Raises DocumentRefused: a document that came over the network may name only the origin it came from, for what the
    operator configured, credentials included, goes there.
    """
    servers = document.root.get("servers")
    first = servers[0] if isinstance(servers, list) and servers else {"url": "/"}
    url = first.get("url") if isinstance(first, Mapping) else None
    if not isinstance(url, str):
        raise DocumentRefused("the document's first server has no url; set base_url")
    variables = first.get("variables")
    values = variables if isinstance(variables, Mapping) else {}

    def default(match: re.Match[str]) -> str:
        variable = values.get(match.group(1))
        value = variable.get("default") if isinstance(variable, Mapping) else None
        return str(value) if isinstance(value, str | int | float) else match.group(0)

    joined = urljoin(document_url, re.sub(r"\{([^{}]*)\}", default, url).strip())
    if not is_base_url(joined):
        raise DocumentRefused("the document names no http or https server; set base_url")
    if document_url and origin(joined) != origin(document_url):
        raise DocumentRefused("the document names a server on another host than its own; set base_url to allow one")
    return joined


def is_base_url(url: str) -> bool:
    """Whether paths can be put behind it: http or https, a host, and neither query, fragment nor credentials."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    if "{" in url or not url.isascii() or not url.isprintable() or " " in url:
        return False
    dots = any(part in (".", "..") for part in parts.path.split("/"))
    return usable and not (parts.query or parts.fragment or parts.username or parts.password or dots)


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. Raises ValueError."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or (443 if parts.scheme == "https" else 80)

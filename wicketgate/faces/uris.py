"""URIs of many servers as one space: the server's name stands in front of the scheme, and every URI that is shown is
one by RFC 3986 (ROUTE-42 to ROUTE-44).

===========================  ==============================================  ==========================
the server ``my_git`` has    it is shown as
===========================  ==============================================  ==========================
``file:///a``, ``urn:x``     ``my.git+file:///a``, ``my.git+urn:x``
``notes/today``              ``my.git+:notes/today``                         no scheme
``file:///a b``              ``my.git++file:///a%20b``                       no URI: percent-encoded once more
``ui://w/app.html``          ``ui://my.git/w/app.html``                      hosts of MCP Apps look for ``ui://``
===========================  ==============================================  ==========================

The form depends on nothing but the name and the URI, so that it means the same whichever servers there are. What an
earlier version showed, ``server__uri``, is still read (``routing.py``).
"""

import re
from urllib.parse import quote, unquote

APP_SCHEME = "ui://"
"""The scheme by which hosts recognise the pages of MCP Apps."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")

# A configured name has no "." and no "__", so a dot stands for "_", and two dots begin what stands for other names.
_PLAIN_NAME = re.compile(r"[a-z][a-z0-9-]*(?:_[a-z0-9-]+)*_?")
_OTHER_NAME = "x.."
_NAME = r"[A-Za-z][A-Za-z0-9.-]*"
_PREFIXED = re.compile(rf"({_NAME})\+(\+?)([^+].*)", re.DOTALL)
_APP = re.compile(rf"ui://({_NAME})(\+?)/(.*)", re.DOTALL | re.IGNORECASE)

MAX_URI_CHARS = 8_192
"""Of a server's own URI: a longer one is shown cut, and read by nobody."""

# Runs and possessive repeats, since a link may be as long as a result.
_PATH = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]++|%[0-9A-Fa-f]{2})*+"
_QUERY = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]++|%[0-9A-Fa-f]{2})*+"
_USER = r"(?:[A-Za-z0-9._~!$&'()*+,;=:-]++|%[0-9A-Fa-f]{2})*+"
_HOST = r"(?:[A-Za-z0-9._~!$&'()*+,;=-]++|%[0-9A-Fa-f]{2})++"
_PORT = r":(?:[0-9]{1,4}|[1-5][0-9]{4}|6[0-4][0-9]{3})"
# Stricter than RFC 3986, where clients' parsers are: a port needs a host and digits, and is not too large.
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*+:"
    rf"(?://(?:(?:{_USER}@)?(?:{_HOST}|\[[0-9A-Fa-f:.]+\])(?:{_PORT})?)?(?=[/?#]|\Z)|(?!//))"
    rf"{_PATH}(?:\?{_QUERY})?(?:\#{_QUERY})?"
)
_KEPT = "-._~!$&'()*+,;=:@/?#"
_DOT_SEGMENT = re.compile(r"(?:^|/)(?:\.|%2e){1,2}(?:[/?#]|$)", re.IGNORECASE)


def shown_uri(server: str, uri: str) -> str:
    """The URI under which all see what *server* calls *uri*."""
    name, uri = _encoded(server), uri[:MAX_URI_CHARS]
    if uri.startswith(APP_SCHEME):
        rest = uri.removeprefix(APP_SCHEME)
        shown = f"{APP_SCHEME}{name}/{rest}"
        # A client that resolves ".." would arrive at the page of another server.
        if _URI.fullmatch(shown) and not _DOT_SEGMENT.search(rest):
            return shown
        return f"{APP_SCHEME}{name}+/~{quote(rest, safe='', errors='surrogatepass')}"
    shown = f"{name}+{_with_colon(uri)}"
    if _URI.fullmatch(shown):
        return shown
    shown = f"{name}++{_with_colon(quote(uri, safe=_KEPT, errors='surrogatepass'))}"
    if _URI.fullmatch(shown):
        return shown
    return f"{name}++:{quote(uri, safe='', errors='surrogatepass')}"


def shown_template(server: str, template: str) -> str:
    """The same for a template (RFC 6570). Its expressions stay as they are, and what a client makes of it is a URI that
    ``split_uri`` understands."""
    name = _encoded(server)
    if template.startswith(APP_SCHEME):
        return f"{APP_SCHEME}{name}/{template.removeprefix(APP_SCHEME)}"
    return f"{name}+{_with_colon(template)}"


def split_uri(shown: str) -> tuple[str, str] | None:
    """The server and its own URI (or template); None for what has another form."""
    if app := _APP.fullmatch(shown):
        server, rest = _decoded(app[1]), app[3]
        if app[2]:
            rest = unquote(rest.removeprefix("~"), errors="surrogatepass")
        return None if server is None else (server, APP_SCHEME + rest)
    if prefixed := _PREFIXED.fullmatch(shown):
        server, uri = _decoded(prefixed[1]), prefixed[3].removeprefix(":")
        if prefixed[2]:
            uri = unquote(uri, errors="surrogatepass")
        return None if server is None or not uri else (server, uri)
    return None


def _with_colon(uri: str) -> str:
    """*uri* with its scheme, or with an empty one."""
    return uri if _SCHEME.match(uri) else f":{uri}"


def _encoded(server: str) -> str:
    """The name in letters of a scheme, small ones, since clients write schemes small."""
    if _PLAIN_NAME.fullmatch(server):
        return server.replace("_", ".")
    return _OTHER_NAME + server.encode("utf-8", "surrogatepass").hex()


def _decoded(name: str) -> str | None:
    name = name.lower()
    if not name.startswith(_OTHER_NAME):
        return name.replace(".", "_")
    try:
        return bytes.fromhex(name.removeprefix(_OTHER_NAME)).decode("utf-8", "surrogatepass")
    except ValueError:
        return None

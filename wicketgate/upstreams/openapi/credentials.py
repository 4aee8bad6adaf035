"""What gives an HTTP upstream its ``Authorization`` header (S1, DESIGN §2 "upstreams")."""

from typing import Protocol


class Credentials(Protocol):
    """The gateway's own credential for one upstream; a client's is never passed on.

    One object serves all calls of an upstream at the same time; callers that come together wait for one token.
    """

    async def authorization(self) -> str:
        """The header's value, from a cache while it is fresh. Raises UpstreamUnavailable when there is none to be had;
        the text is fixed and names no address and no secret."""
        ...

    async def renew(self) -> None:
        """The server answered 401 to the value given last: have ``authorization`` give another one.

        Call it once, then send the request once more. Very soon after another renewal it does nothing: of calls that
        were refused together one is enough. Raises UpstreamUnavailable when there is no credential to be had, also
        without asking for one when the last attempt failed a short time ago.
        """
        ...

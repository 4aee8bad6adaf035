"""The ID tokens of callers who have logged in with a browser, for the exchange by ``id_jag`` (UP-195 to UP-197)."""

from collections.abc import Callable, Mapping

from wicketgate.access.issuer import Issuer
from wicketgate.login.keys import row_key
from wicketgate.login.sealed_rows import OpenedRow, SealedRows

_MOST_S = 30 * 86_400.0
_TRIES = 5


class KeptIdTokens:
    """Implements IdTokens with the latest ID token of each actor, kept in *rows* until it ends. *issuers* gives those
    whose ID tokens are needed, by their names, as they are configured now. *now* is the time of day in seconds."""

    def __init__(self, rows: SealedRows, issuers: Callable[[], Mapping[str, Issuer]], now: Callable[[], float]) -> None:
        self._rows = rows
        self._issuers = issuers
        self._now = now

    async def keep(self, name: str, actor: str, id_token: str, ends_at: float) -> None:
        """Keep what the issuer *name* gave for *actor*, in place of one before; nothing where none is needed. Raises
        LoginsAway."""
        issuer = self._issuers().get(name)
        if issuer is None or self._now() >= ends_at:
            return
        key, value = _key(actor), {"id_token": id_token, **_given_by(issuer)}
        ends_at = min(ends_at, self._now() + _MOST_S)
        for _ in range(_TRIES):
            former = await self._rows.read("id_token", key)
            version = 1 if former is None else former.version + 1
            # Of two logins at once the later one counts.
            if await self._rows.write(OpenedRow("id_token", key, actor, value, version, ends_at)):
                return

    async def id_token_of(self, actor: str) -> str | None:
        row = await self._rows.read("id_token", _key(actor))
        if row is None or row.owner != actor or row.expires_at is None or self._now() >= row.expires_at:
            return None
        issuer = self._issuers().get(str(row.value.get("name")))
        # An ID token goes to nobody but the issuer that gave it, and by the client that it was given to.
        if issuer is None or any(row.value.get(name) != value for name, value in _given_by(issuer).items()):
            return None
        return str(row.value["id_token"])


def _given_by(issuer: Issuer) -> Mapping[str, str]:
    client = "" if issuer.login is None else issuer.login.client_id
    return {"name": issuer.name, "issuer": issuer.url, "client_id": client}


def _key(actor: str) -> str:
    return row_key("id token of", actor)

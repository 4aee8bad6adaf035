"""The tokens of a login that a person made once, for all callers of a server (``credentials: shared``), and its file.

The login is stored where ``wicketgate login`` writes it: one sealed file for each tool server, with the key next to it,
readable only by the owner. Without its key, a login is treated as missing. One process at a time refreshes the tokens:
a second refresh with the same token would end the login at many issuers.
"""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from hashlib import sha256
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import TypeAdapter, ValidationError

from wicketgate.login.client import Login, LoginClient
from wicketgate.login.issued import EARLY_S
from wicketgate.login.steps import ClientInvalid, Distrusted, GrantInvalid, IssuerAway, NeedsLogin, NotOffered
from wicketgate.login.token_endpoint import Tokens
from wicketgate.net.challenge import Refusal

_LOGIN = TypeAdapter(Login)
_NONCE_BYTES = 12
_KEY_BYTES = 32
_LOCK_AGAIN_S = 0.1


def login_folder(environ: Mapping[str, str]) -> Path:
    """The place of this user's logins: below ``XDG_STATE_HOME``, or ``~/.local/state``."""
    state = environ.get("XDG_STATE_HOME") or Path(environ.get("HOME") or Path.home()) / ".local" / "state"
    return Path(state) / "wicketgate" / "logins"


class LoginFile:
    """The login at the server *name* at *server_url*, in *folder*, for all processes of a service. A login that was
    made for another URL is not found: a name may come to mean another server. Methods raise IssuerAway while it cannot
    be reached."""

    def __init__(self, folder: Path, name: str, server_url: str) -> None:
        self._folder = folder
        self._bound_to = f"wicketgate login 1\0{name}\0{server_url}".encode()
        self._path = folder / f"{name}-{sha256(self._bound_to).hexdigest()[:12]}.login"

    async def read(self) -> Login | None:
        return await asyncio.to_thread(self._read)

    async def write(self, login: Login | None) -> None:
        """Keep *login* in place of the one before; None: none."""
        await asyncio.to_thread(self._write, login)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Inside, no other process is inside."""
        lock = await asyncio.to_thread(self._lock)
        try:
            # Tried again and again, because a thread that waits for a lock outlives the task that wanted it.
            while not _locked(lock):  # noqa: ASYNC110 - another process sets no event
                await asyncio.sleep(_LOCK_AGAIN_S)
            yield
        finally:
            os.close(lock)

    def _read(self) -> Login | None:
        try:
            sealed, key = self._path.read_bytes(), self._key()
            opened = AESGCM(key).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], self._bound_to)
            return _LOGIN.validate_json(opened)
        except FileNotFoundError:
            return None
        except (InvalidTag, ValidationError, ValueError):
            return None
        except OSError as error:
            raise IssuerAway(f"the login in {self._path} cannot be read: {error.strerror}") from None

    def _write(self, login: Login | None) -> None:
        try:
            if login is None:
                self._path.unlink(missing_ok=True)
                return
            nonce = os.urandom(_NONCE_BYTES)
            sealed = nonce + AESGCM(self._key()).encrypt(nonce, _LOGIN.dump_json(login), self._bound_to)
            _write_private(self._path, sealed)
        except OSError as error:
            raise IssuerAway(f"the login cannot be kept in {self._path}: {error.strerror}") from None

    def _key(self) -> bytes:
        path = self._folder / "key"
        self._make_folder()
        with suppress(FileExistsError):
            # Made whole beside it, so that no other process reads half a key.
            own = self._folder / f"key.{os.getpid()}.{os.urandom(4).hex()}"
            if not path.exists():
                _write_private(own, os.urandom(_KEY_BYTES))
                try:
                    os.link(own, path)
                finally:
                    own.unlink()
        key = path.read_bytes()
        if len(key) != _KEY_BYTES:
            raise ValueError("the key of the logins is damaged")
        return key

    def _lock(self) -> int:
        """The descriptor of a lock, not taken yet, which ends when it is closed, or with the process."""
        try:
            self._make_folder()
            return os.open(self._folder / f"{self._path.stem}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise IssuerAway(f"logins cannot be kept in {self._folder}: {error.strerror}") from None

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)


def _locked(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_private(path: Path, data: bytes) -> None:
    """Put *data* in the place of the file at once, and on the disk: a refresh token that is lost ends a login."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


class LoginSource:
    """Implements TokenSource with the login in *keep*. *how* tells the operator how to log in again."""

    def __init__(self, keep: LoginFile, client: LoginClient, now: Callable[[], float], how: str) -> None:
        self._keep = keep
        self._client = client
        self._now = now
        self._how = how
        self._given: Tokens | None = None

    async def get(self, refusal: Refusal | None) -> Tokens:
        async with self._keep.alone():
            login = await self._keep.read()
            if login is None:
                raise NeedsLogin(self._how)
            # Another process has renewed it, or a person has.
            if login.tokens == self._given or self._ends(login.tokens):
                login = await self._renewed(login, refusal)
        self._given = login.tokens
        return login.tokens

    async def other(self) -> Tokens | None:
        login = await self._keep.read()
        if login is None or login.tokens == self._given:
            return None
        self._given = login.tokens
        return login.tokens

    async def _renewed(self, login: Login, refusal: Refusal | None) -> Login:
        try:
            if refusal is not None:
                await self._check_issuer(login, refusal)
            if login.tokens.refresh_token:
                login = await self._client.refresh(login)
                await self._keep.write(login)
                return login
            ended = "its token has ended, and its issuer gave none to renew it with"
        except (GrantInvalid, ClientInvalid) as failure:
            ended = failure.detail
        # A login that has ended is shown to nobody any more.
        await self._keep.write(None)
        raise NeedsLogin(f"{ended}: {self._how}")

    async def _check_issuer(self, login: Login, refusal: Refusal) -> None:
        """Raises GrantInvalid if the server takes tokens of another issuer now: the login is of no more use, and what
        is known of its client must not be shown to the other one."""
        try:
            found = await self._client.look(refusal)
        except (NotOffered, Distrusted):
            return
        if found.issuer.issuer != login.tokens.issuer:
            raise GrantInvalid("the server takes tokens of another issuer now")

    def _ends(self, tokens: Tokens) -> bool:
        return tokens.expires_at is not None and tokens.expires_at - EARLY_S <= self._now()

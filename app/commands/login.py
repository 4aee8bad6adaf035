"""``wicketgate login``, ``logout`` and ``connections``: logins on this machine, or at a running gate."""

import asyncio
import hmac
import json
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from time import time
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, parse_qsl, quote, urlsplit

import click

from app.commands.groups import did_you_mean
from app.commands.output import printable
from wicketgate.config.settings import Settings, UpstreamSettings
from wicketgate.config.upstream_logins import how_to_log_in, login_client, login_file
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.config.user_logins import shares_logins
from wicketgate.errors import ConfigError
from wicketgate.login.authorize import came_of
from wicketgate.login.client import Login
from wicketgate.login.steps import LoginFailure
from wicketgate.net.outgoing import shown_origin

if TYPE_CHECKING:
    from app.commands.gate_client import RemoteGate

_WITHIN_S = 600.0
_READ_S = 10.0
_MAX_HEAD = 16_384
_CALLBACK = "/callback"
_PAGE = b"<!doctype html><meta charset=utf-8><title>Wicketgate</title><p>Done here. The terminal says how it went.</p>"


async def log_in(settings: Settings, name: str, *, browser: bool, scopes: tuple[str, ...], port: int) -> None:
    """Log in at the upstream *name* and keep the login. *port* of the address that the browser comes back to: 0 for the
    one of the login before, or any. Raises ConfigError."""
    upstream = _upstream(settings, name, "login")
    keep, client = login_file(upstream), login_client(upstream, outgoing_rules(settings), scopes)

    async def browse(url: str) -> Mapping[str, str]:
        shown = browser and await asyncio.to_thread(webbrowser.open, url)
        click.echo(f"{'Opened in your browser' if shown else 'Open in a browser'}:\n{printable(url)}", err=True)
        query = parse_qs(urlsplit(url).query)
        back = query["redirect_uri"][-1]
        click.echo(f"Waiting for it to come back to {back} ...", err=True)
        return await returning.answer(query["state"][-1], urlsplit(back).path)

    try:
        before = await keep.read()
        known = before.registration if before is not None else None
        async with _returning(port or _port_of(before)) as returning:
            refusal = await client.refusal()
            async with asyncio.timeout(_WITHIN_S):
                login = await client.log_in(returning.address, browse, refusal, known=known)
        async with keep.alone():
            await keep.write(login)
    except LoginFailure as failure:
        raise ConfigError(f"{name}: {failure.why}: {failure.detail}") from None
    except TimeoutError:
        raise ConfigError(f"{name}: the browser did not come back within {_WITHIN_S:g} s.") from None
    click.echo(printable(f"{name}: logged in at {_described(login)}"))


async def log_out(settings: Settings, name: str) -> None:
    """End the login at the upstream *name* at its issuer, and forget it here. Raises ConfigError."""
    upstream = _upstream(settings, name, "logout")
    keep, client = login_file(upstream), login_client(upstream, outgoing_rules(settings))
    try:
        async with keep.alone():
            login = await keep.read()
            if login is None:
                click.echo(f"{name}: there is no login")
                return
            # Gone here in any case: an issuer that is away must not keep it alive.
            await keep.write(None)
        revoked = await client.revoke(login)
    except LoginFailure as failure:
        raise ConfigError(f"{name}: removed here, but perhaps still valid at its issuer: {failure.detail}") from None
    click.echo(
        f"{name}: logged out" if revoked else f"{name}: forgotten here; its issuer offers no way to end it there"
    )


async def show_connections(settings: Settings, *, as_json: bool) -> None:
    """Print the login of each upstream that needs one."""
    found, at_gate, of_users = {}, [], []
    for upstream in settings.upstreams:
        if upstream.connects_users:
            of_users.append(upstream.name)
        elif upstream.oauth is not None and upstream.oauth.needs_person:
            if shares_logins(settings) and upstream.needs_operator_login:
                at_gate.append(upstream.name)
                continue
            try:
                found[upstream.name] = await login_file(upstream).read()
            except LoginFailure as failure:
                raise ConfigError(failure.detail) from None
    if as_json:
        click.echo(json.dumps({name: _as_dict(login) for name, login in found.items()}, indent=2))
        return
    for name in at_gate:
        click.echo(printable(f"{name}: kept at the gate: {_at_gate('connections', settings)}"))
    for name in of_users:
        said = f"each caller has an account of its own: {_at_gate('connections', settings)}"
        click.echo(printable(f"{name}: {said}"))
    if not found and not at_gate and not of_users:
        click.echo("No upstream has oauth for logins.", err=True)
    for name, login in found.items():
        said = f"needs a login: {how_to_log_in(name)}" if login is None else f"logged in at {_described(login)}"
        click.echo(printable(f"{name}: {said}"))


def _upstream(settings: Settings, name: str, command: str) -> UpstreamSettings:
    upstream = next((each for each in settings.upstreams if each.name == name), None)
    if upstream is None:
        raise ConfigError(
            f"No upstream is called {name}.{did_you_mean(name, [each.name for each in settings.upstreams])}"
        )
    if not upstream.url:
        raise ConfigError(f"{name}: logins are for upstreams with url.")
    if upstream.connects_users:
        raise ConfigError(
            f"{name}: each caller has an account of its own there, and connects it at the gate, with its own key:"
            f" {_at_gate(f'{command} {name}', settings)}"
        )
    if upstream.oauth is None:
        raise ConfigError(f"{name}: write oauth: {{}} at this upstream first, so that the gate uses the login.")
    if not upstream.oauth.needs_person:
        raise ConfigError(f"{name}: its oauth needs no person: the gate gets its tokens by itself.")
    if shares_logins(settings) and upstream.needs_operator_login:
        raise ConfigError(
            f"{name}: its login is kept in the store of storage.url, for all processes, so it is made and ended at the"
            f" gate, with the key of an operator (ops:write): {_at_gate(f'{command} {name}', settings)}"
        )
    return upstream


def _at_gate(command: str, settings: Settings) -> str:
    return f"wicketgate {command} --url {settings.server.public_url}"


class _Returning:
    """The place on this machine that the browser comes back to."""

    def __init__(self) -> None:
        self.address = ""
        self._state = self._path = ""
        self._came: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()

    async def answer(self, state: str, path: str) -> Mapping[str, str]:
        """The query of the request that brings *state* to *path*, that of one issuer. Others are turned away: any page
        may send some."""
        self._state, self._path, self._came = state, path, asyncio.get_running_loop().create_future()
        return await self._came

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
                status, body = self._judge(head.split(b"\r\n", 1)[0].decode("latin-1"))
                fields = "Content-Type: text/html\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n"
                safe = "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'\r\nConnection: close\r\n"
                length = f"Content-Length: {len(body)}\r\n\r\n"
                writer.write(f"HTTP/1.1 {status}\r\n{fields}{safe}{length}".encode("ascii") + body)
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass  # no browser with an answer
        finally:
            writer.close()

    def _judge(self, line: str) -> tuple[str, bytes]:
        method, _, rest = line.partition(" ")
        path, _, query = rest.partition(" ")[0].partition("?")
        if method != "GET" or path != self._path:
            return "404 Not Found", b""
        came = came_of(parse_qsl(query, keep_blank_values=True))
        state = came.get("state", "")
        if not self._state or not hmac.compare_digest(state.encode(), self._state.encode()) or self._came.done():
            return "400 Bad Request", b""
        self._came.set_result(came)
        return "200 OK", _PAGE


@asynccontextmanager
async def _returning(port: int) -> AsyncIterator[_Returning]:
    """On *port* of this machine alone, or any if that is 0 or taken."""
    place = _Returning()
    try:
        server = await asyncio.start_server(place.serve, "127.0.0.1", port, limit=_MAX_HEAD)
    except OSError:
        server = await asyncio.start_server(place.serve, "127.0.0.1", 0, limit=_MAX_HEAD)
    place.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{_CALLBACK}"
    async with server:
        yield place


def _port_of(before: Login | None) -> int:
    """The port of the login before: a client that registered itself did so with its address."""
    if before is None:
        return 0
    try:
        return urlsplit(before.registration.redirect_uri).port or 0
    except ValueError:
        return 0


def _described(login: Login) -> str:
    tokens = login.tokens
    scopes = f", scopes {' '.join(sorted(tokens.scopes))}" if tokens.scopes else ""
    if tokens.refresh_token:
        lasts = "renewed by itself"
    elif tokens.expires_at is None:
        lasts = "its issuer does not say when it ends"
    else:
        lasts = f"{'ended' if tokens.expires_at <= time() else 'ends'} {_written(tokens.expires_at)}, without renewal"
    return f"{shown_origin(tokens.issuer)}{scopes}; {lasts}"


def _as_dict(login: Login | None) -> dict[str, object] | None:
    if login is None:
        return None
    tokens = login.tokens
    ends = None if tokens.expires_at is None else _written(tokens.expires_at)
    renewed = bool(tokens.refresh_token)
    return {"issuer": tokens.issuer, "scopes": sorted(tokens.scopes), "token_ends": ends, "renewed_by_itself": renewed}


def _written(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_WAIT_S = 20.0
_ENDS = {
    "declined": "the login was declined.",
    "failed": "the login failed, or was not finished in time.",
}


def _reached(url: str, key: str | None) -> "AbstractAsyncContextManager[RemoteGate]":
    # Its module brings the whole gate, which a login on this machine does without.
    from app.commands.gate_client import open_remote

    return open_remote(url, key)


async def log_in_at(url: str, key: str | None, name: str, *, browser: bool) -> None:
    """Connect an account at the upstream *name* of the gate at *url*. Raises ConfigError."""
    async with _reached(url, key) as gate:
        offered = await gate.ask("POST", f"/connections/{quote(name, safe='')}")
        page = str(offered.get("url"))
        if not page.startswith(("https://", "http://")):
            raise ConfigError("the answer is not that of a Wicketgate; is --url right?")
        shown = browser and await asyncio.to_thread(webbrowser.open, page)
        click.echo(f"{'Opened in your browser' if shown else 'Open in a browser'}:\n{printable(page)}", err=True)
        click.echo("Waiting for the login to end ...", err=True)
        where = f"/connections/{quote(name, safe='')}/login"
        outcome = "waiting"
        while outcome == "waiting":
            outcome = str((await gate.ask("GET", where, f=offered.get("flow"), wait_s=_WAIT_S)).get("outcome"))
        if outcome != "granted":
            raise ConfigError(f"{name}: {_ENDS.get(outcome, 'the login failed.')}")
        click.echo(f"{name}: connected")


async def log_out_at(url: str, key: str | None, name: str) -> None:
    """End one's own account at the upstream *name* of the gate at *url*. Raises ConfigError."""
    async with _reached(url, key) as gate:
        ended = (await gate.ask("DELETE", f"/connections/{quote(name, safe='')}")).get("ended")
    click.echo(f"{name}: disconnected" if ended else f"{name}: there is no account")


async def show_connections_at(url: str, key: str | None, *, as_json: bool) -> None:
    """Print one's own accounts at the gate at *url*. Raises ConfigError."""
    async with _reached(url, key) as gate:
        found = await gate.ask("GET", "/connections")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for each in found.get("connections", ()):
        click.echo(printable(f"{each.get('upstream')}: {_described_at_gate(each)}"))
    for name in found.get("open", ()):
        click.echo(printable(f"{name}: no account: wicketgate login {name} --url {url}"))
    if not found.get("connections") and not found.get("open"):
        click.echo("No upstream of this gate has accounts of users.", err=True)


def _described_at_gate(one: Mapping[str, Any]) -> str:
    if one.get("state") == "reconnect":
        return f"its issuer at {one.get('issuer')} no longer accepts the login; log in again"
    scopes = f", scopes {' '.join(map(str, one.get('scopes', ())))}" if one.get("scopes") else ""
    lasts = (
        "renewed by itself"
        if one.get("renewed")
        else f"ends {one.get('token_ends') or 'at a time that its issuer does not say'}"
    )
    whose = "" if one.get("actor") else " for all callers"
    return f"connected{whose} at {one.get('issuer')}{scopes}; {lasts}"

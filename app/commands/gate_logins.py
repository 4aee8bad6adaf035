"""``wicketgate login``, ``logout`` and ``connections`` with ``--url``: one's own accounts at a gate that runs."""

import asyncio
import json
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import click
import httpx

from app.commands.output import printable
from wicketgate.config.settings import Settings
from wicketgate.config.upstreams import outgoing_rules
from wicketgate.errors import ConfigError
from wicketgate.net import HttpClient, make_http_client
from wicketgate.net.outgoing import shown_origin, trouble_of

_WITHIN_S = 30.0
_WAIT_S = 20.0
_NO_URL = "--url (or WG_URL) is no URL of a service; it looks like http://127.0.0.1:8080"
_ENDS = {
    "declined": "the login was declined.",
    "failed": "the login failed, or nobody finished it in time.",
}


async def log_in_at(url: str, key: str | None, name: str, *, browser: bool) -> None:
    """Connect an account at the upstream *name* of the gate at *url*. Raises ConfigError."""
    async with _gate(url, key) as ask:
        offered = await ask("POST", f"/connections/{quote(name, safe='')}")
        page = str(offered.get("url"))
        if not page.startswith(("https://", "http://")):
            raise ConfigError("the answer is not that of a Wicketgate; is --url right?")
        shown = browser and await asyncio.to_thread(webbrowser.open, page)
        click.echo(f"{'Opened in your browser' if shown else 'Open in a browser'}:\n{printable(page)}", err=True)
        click.echo("Waiting for the login to end ...", err=True)
        where = f"/connections/{quote(name, safe='')}/login"
        outcome = "waiting"
        while outcome == "waiting":
            outcome = str((await ask("GET", where, f=offered.get("flow"), wait_s=_WAIT_S)).get("outcome"))
        if outcome != "granted":
            raise ConfigError(f"{name}: {_ENDS.get(outcome, 'the login did not come about.')}")
        click.echo(f"{name}: connected")


async def log_out_at(url: str, key: str | None, name: str) -> None:
    """End one's own account at the upstream *name* of the gate at *url*. Raises ConfigError."""
    async with _gate(url, key) as ask:
        ended = (await ask("DELETE", f"/connections/{quote(name, safe='')}")).get("ended")
    click.echo(f"{name}: disconnected" if ended else f"{name}: there is no account")


async def show_connections_at(url: str, key: str | None, *, as_json: bool) -> None:
    """Print one's own accounts at the gate at *url*. Raises ConfigError."""
    async with _gate(url, key) as ask:
        found = await ask("GET", "/connections")
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for each in found.get("connections", ()):
        click.echo(printable(f"{each.get('upstream')}: {_described(each)}"))
    for name in found.get("open", ()):
        click.echo(printable(f"{name}: no account: wicketgate login {name} --url {url}"))
    if not found.get("connections") and not found.get("open"):
        click.echo("No upstream of this gate has accounts of users.", err=True)


def _described(one: Mapping[str, Any]) -> str:
    if one.get("state") == "reconnect":
        return f"its issuer at {one.get('issuer')} takes the login no more; log in anew"
    scopes = f", scopes {' '.join(map(str, one.get('scopes', ())))}" if one.get("scopes") else ""
    lasts = "renewed by itself" if one.get("renewed") else f"ends {one.get('token_ends') or 'at a time nobody says'}"
    whose = "" if one.get("actor") else " for all callers"
    return f"connected{whose} at {one.get('issuer')}{scopes}; {lasts}"


class _Ask:
    def __init__(self, http: HttpClient, *, with_key: bool) -> None:
        self._http = http
        self._with_key = with_key

    async def __call__(self, method: str, path: str, **query: Any) -> Mapping[str, Any]:
        """The object that the gate answers with. Raises ConfigError."""
        try:
            answer = await self._http.request(method, path, params=query, timeout=httpx.Timeout(_WITHIN_S))
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            told = trouble_of(error).told(str(self._http.base_url), "--url (or WG_URL)")
            raise ConfigError(f"the service cannot be reached: {told}") from None
        try:
            read = answer.json()
        except ValueError:
            read = None
        read = read if isinstance(read, dict) else {}
        if answer.status_code == 401:
            reason = "the key is not one of the service" if self._with_key else "a key is missing"
            raise ConfigError(f"the service refused it (HTTP 401): {reason}; give it by --key, or in WG_KEY")
        if answer.status_code != 200:
            why = printable(str(read.get("message", "no reason given")))
            raise ConfigError(f"the service refused it (HTTP {answer.status_code}): {why}")
        return read


@asynccontextmanager
async def _gate(url: str, key: str | None) -> AsyncIterator[_Ask]:
    if not shown_origin(url).startswith(("http://", "https://")):
        raise ConfigError(_NO_URL)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        client = make_http_client(outgoing_rules(Settings()), base_url=url, headers=headers)
    except httpx.InvalidURL:
        raise ConfigError(_NO_URL) from None
    async with client as http:
        yield _Ask(http, with_key=bool(key))

"""``/connect`` and ``/login``: the pages on which a person connects an account at a tool server (ACCESS-180 to
ACCESS-192).

Anyone who opens a link must be who asked: that is looked at when the page is opened, when it is agreed to, and when the
browser comes back. All addresses are built from ``server.public_url``.
"""

import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from urllib.parse import parse_qsl, quote, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.responses import Response

from app import login_pages as pages
from app.json_body import read_short
from routers.login_tries import LoginTries
from wicketgate.access.authenticator import Authenticator
from wicketgate.access.identity import Identity
from wicketgate.errors import StoreUnavailable
from wicketgate.gateway.audit_events import AuditEvents
from wicketgate.login.authorize import came_of
from wicketgate.login.browser_logins import LIFE_S, BrowserLogins, KeptIdTokens
from wicketgate.login.login_flow import BrowserSession, LoginRefused, RefusalReason, is_same_secret
from wicketgate.login.logins import AGREED_S, TooManyBrowsers
from wicketgate.login.logins import LIFE_S as SESSION_S
from wicketgate.login.sealed_rows import row_key
from wicketgate.login.steps import LoginFailure
from wicketgate.login.user_logins import CALLBACK, DOCUMENTS, UserLogins
from wicketgate.ports import source_of

log = logging.getLogger("wicketgate.login")

Answer = Callable[[Request], Awaitable[Response]]

_MOST_BYTES = 4_000
_MOST_FIELDS = 12
_MOST_QUERY = 16_000
_FLOW_CHARS = 100

_AWAY = ("Please try again", "What is kept of logins cannot be read at the moment. Try again in a while.")
_WORDS: Mapping[RefusalReason, tuple[int, str, str]] = {
    "gone": (410, "This link has expired", "Call the tool again, and your assistant gives you a new one."),
    "over": (409, "This link was used already", "If the account is not connected, call the tool again for a new one."),
    "other_browser": (403, "Another page is in the way", "Open the link again, in this browser."),
    "forged": (403, "This form is out of date", "Open the link again, and agree there."),
    "other_issuer": (400, "The login failed", "The answer was not from where you were sent. Nothing was connected."),
}
_TOO_OFTEN = (429, "Too many failed logins", "Wait a minute, then open the link again.")
_LATER = {"retry-after": "60"}
_NO_SESSION = ("Sign in again", "This browser is not signed in here any more. Open the link again.")


class _Cookies:
    """The cookies of this gate. Over plain http, on this machine, browsers take no ``__Host-``, and tell no ports
    apart."""

    def __init__(self, public_url: str) -> None:
        parts = urlsplit(public_url)
        self._secure = parts.scheme == "https"
        prefix = "__Host-wicketgate" if self._secure else f"wicketgate-{parts.port or 80}"
        self.browser, self.form, self.login = (f"{prefix}-{name}" for name in ("browser", "form", "login"))
        self._state = f"{prefix}-state"

    def state(self, flow: str) -> str:
        """One for each login, so that two that are under way in a browser are not in each other's way."""
        return f"{self._state}-{sha256(flow.encode()).hexdigest()[:12]}"

    def put(self, answer: Response, name: str, value: str, for_s: float) -> None:
        answer.set_cookie(name, value, int(for_s), path="/", secure=self._secure, httponly=True, samesite="lax")

    def drop(self, answer: Response, name: str) -> None:
        answer.delete_cookie(name, path="/", secure=self._secure, httponly=True, samesite="lax")


@dataclass(eq=False, repr=False)
class ConnectPages:
    """Answers the requests of browsers. *has_keys* says whether callers with keys are served."""

    open_under = ("/connect/", "/login/", DOCUMENTS)
    """The paths below which no credential is asked for: browsers and issuers send none."""

    _logins: UserLogins
    _browsers: BrowserLogins
    _id_tokens: KeptIdTokens
    _authenticator: Authenticator
    _audit: AuditEvents
    _tries: LoginTries
    _has_keys: Callable[[], bool]
    _server_host: Callable[[str], str]

    def __post_init__(self) -> None:
        self._url = self._logins.public_url
        own = urlsplit(self._url)
        self._own_host, self.origin = own.netloc, f"{own.scheme}://{own.netloc}"
        self._cookies = _Cookies(self._url)

    def router(self) -> APIRouter:
        router = APIRouter(include_in_schema=False)
        ways: tuple[tuple[str, str, Answer], ...] = (
            ("GET", f"{DOCUMENTS}{{mark}}.json", self.document),
            ("GET", CALLBACK, self.callback),
            ("GET", f"{CALLBACK}/{{mark}}", self.callback),
            ("GET", "/connect/{upstream}", self.open),
            ("POST", "/connect/{upstream}", self.decide),
            ("POST", "/login/key", self.use_key),
            ("POST", "/login/issuer/{name}", self.use_issuer),
            ("POST", "/login/out", self.sign_out),
            ("GET", "/login/callback", self.from_issuer),
        )
        for method, path, answer in ways:
            router.add_api_route(path, _page(self, answer), methods=[method])
        return router

    async def document(self, request: Request) -> Response:
        made = self._logins.document(request.path_params["mark"])
        if made is None:
            return _said(404, "There is nothing here", "This is no document of this gate.")
        return JSONResponse(made, headers={"cache-control": "public, max-age=300"})

    # Opening the link.

    async def open(self, request: Request) -> Response:
        upstream, flow = request.path_params["upstream"], request.query_params.get("f", "")
        if not self._logins.has(upstream) or not 0 < len(flow) <= _FLOW_CHARS:
            return _said(404, "There is nothing here", "Use the link as your assistant gave it to you.")
        session = await self._session(request)
        if session is None:
            return self._identify(request, upstream, flow)
        if self._logins.is_at_issuer(upstream):
            return await self._at_issuer(request, upstream, flow, session)
        login = await self._logins.logins.open(flow, session)
        server = self._logins.server(upstream)
        if login.upstream != upstream or server is None:
            raise LoginRefused("gone")
        place = await server.place()
        issuer, scopes = place.found.issuer.issuer, server.scopes(place, login)
        text = pages.consent(
            upstream,
            self._server_host(upstream),
            urlsplit(issuer).netloc,
            place.page,
            scopes,
            session.actor,
            self._own_host,
            f"{self._url}/connect/{upstream}",
            {"f": flow, "t": login.csrf, "i": _shown(server.url, issuer, place.page, scopes)},
            for_all=self._logins.is_shared(upstream),
        )
        return HTMLResponse(text, headers=dict(pages.OF_FORMS))

    async def _at_issuer(self, request: Request, upstream: str, flow: str, session: BrowserSession) -> Response:
        """The way at a server whose callers need only a login at their own issuer. Nothing is asked after it: the
        caller's own call goes on, as it would have with the login before."""
        login = await self._logins.logins.find(flow)
        if login.upstream != upstream:
            raise LoginRefused("gone")
        # A browser stays signed in for longer than an ID token is good.
        if login.is_open and login.actor == session.actor and await self._id_tokens.id_token_of(login.actor) is None:
            return self._identify(request, upstream, flow)
        await self._logins.logins.log_in(flow, session)
        self._audit.connection(session.actor, upstream, "logged in: at its issuer")
        return _said(200, "Logged in", f"Calls of {upstream} work now. You can close this window; the call continues.")

    async def decide(self, request: Request) -> Response:
        upstream, form = request.path_params["upstream"], await _form(request)
        session, flow = await self._session(request), form.get("f", "")
        if session is None:
            return _said(403, *_NO_SESSION)
        login = await self._logins.logins.find(flow)
        server = self._logins.server(upstream)
        if login.upstream != upstream or server is None:
            raise LoginRefused("gone")
        if form.get("a") != "connect":
            await self._logins.logins.decline(flow, session, form.get("t", ""))
            self._audit.connection(session.actor, upstream, "declined: by its owner", "denied")
            return _said(200, "Not connected", "You said no. Nothing was connected; you can close this window.")
        # Nobody else's form has the issuer asked for anything.
        if login.actor != session.actor:
            raise LoginRefused("other_actor")
        if not is_same_secret(login.csrf, form.get("t", "")):
            raise LoginRefused("forged")
        agreement, url = await server.begin(login)
        # What was agreed to is what the page has shown, and no issuer or scope that came since.
        shown = _shown(agreement.server, agreement.issuer, urlsplit(url).netloc, agreement.scopes)
        if not is_same_secret(shown, form.get("i", "")):
            raise LoginRefused("forged")
        await self._logins.logins.agree(flow, session, form.get("t", ""), agreement)
        answer = _onward(url)
        self._cookies.put(answer, self._cookies.state(flow), agreement.state, AGREED_S)
        return answer

    async def callback(self, request: Request) -> Response:
        came = _came(request)
        session, state = await self._session(request), came.get("state", "")
        if session is None:
            return _said(403, *_NO_SESSION)
        flow = state.partition(".")[0]
        if (await self._logins.logins.find(flow)).actor != session.actor:
            raise LoginRefused("other_actor")
        kept = self._cookies.state(flow)
        if not is_same_secret(request.cookies.get(kept, ""), state):
            raise LoginRefused("forged")
        login = await self._logins.come_back(came, session, request.path_params.get("mark", ""))
        match login.state:
            case "granted":
                done = f"Your account at {login.upstream} is connected."
                answer = _said(200, "Connected", done, "You can close this window; the call continues.")
            case "declined":
                self._audit.connection(login.actor, login.upstream, "declined: at its issuer", "denied")
                answer = _said(200, "Not connected", "It was declined there. You can close this window.")
            case _:
                self._audit.connection(login.actor, login.upstream, f"failed: {login.why}", "failed")
                answer = _said(
                    502, "The login failed", f"Nothing was connected: {login.why}.", "Call the tool again to try again."
                )
        self._cookies.drop(answer, kept)
        return answer

    # Saying who one is.

    async def use_key(self, request: Request) -> Response:
        form = await self._own_form(request)
        upstream, flow = form.get("u", ""), form.get("f", "")
        source = source_of(request.scope)
        found = self._authenticator.authenticate(form.get("key", "").strip(), source, request.url.path)
        # Tokens of issuers say who someone is at their own door; in a browser their issuer is asked.
        if not isinstance(found, Identity) or found.issuer:
            # Wrong answers alone are held back: others in the network have right keys.
            if not self._tries.may(source):
                return _said(*_TOO_OFTEN, headers=_LATER)
            self._tries.wrong(source)
            return self._identify(request, upstream, flow, "This key is not accepted here.")
        return await self._signed_in(request, found.actor, upstream, flow, key_id=found.key_id)

    async def use_issuer(self, request: Request) -> Response:
        form = await self._own_form(request)
        asked = await self._browsers.begin(request.path_params["name"], form.get("u", ""), form.get("f", ""))
        answer = _onward(asked.url)
        self._cookies.put(answer, self._cookies.login, asked.cookie, LIFE_S)
        return answer

    async def from_issuer(self, request: Request) -> Response:
        source = source_of(request.scope)
        if not self._tries.may(source):
            return _said(*_TOO_OFTEN, headers=_LATER)
        try:
            who = await self._browsers.finish(request.cookies.get(self._cookies.login, ""), _came(request))
        except LoginFailure:
            self._tries.wrong(source)
            raise
        answer = await self._signed_in(request, who.actor, who.upstream, who.flow, issuer=who.issuer)
        self._cookies.drop(answer, self._cookies.login)
        return answer

    async def sign_out(self, request: Request) -> Response:
        form = await self._own_form(request)
        cookie = request.cookies.get(self._cookies.browser, "")
        if cookie:
            await self._logins.browsers.end(cookie)
        answer = self._back_to(form.get("u", ""), form.get("f", ""))
        self._cookies.drop(answer, self._cookies.browser)
        return answer

    async def _signed_in(
        self, request: Request, actor: str, upstream: str, flow: str, *, key_id: str = "", issuer: str = ""
    ) -> Response:
        former = request.cookies.get(self._cookies.browser, "")
        try:
            cookie, _ = await self._logins.browsers.begin(actor, former, key_id=key_id, issuer=issuer)
        except TooManyBrowsers:
            return _said(429, "Signed in too often", "You are signed in in too many browsers. Sign out of one first.")
        answer = self._back_to(upstream, flow)
        self._cookies.put(answer, self._cookies.browser, cookie, SESSION_S)
        self._cookies.drop(answer, self._cookies.form)
        return answer

    def _back_to(self, upstream: str, flow: str) -> Response:
        """The page of the login. There is no other place to go to."""
        if not self._logins.has(upstream) or not 0 < len(flow) <= _FLOW_CHARS:
            return _said(200, "Done", "Now open the link that your assistant gave you.")
        url = f"{self._url}/connect/{upstream}?f={quote(flow, safe='')}"
        return RedirectResponse(url, 303, headers=dict(pages.HEADERS))

    def _identify(self, request: Request, upstream: str, flow: str, wrong: str = "") -> Response:
        issuers = [
            (f"{self._url}/login/issuer/{name}", urlsplit(url).netloc) for name, url in self._browsers.names.items()
        ]
        # A key gives no ID token.
        offers_key = self._has_keys() and not self._logins.is_at_issuer(upstream)
        key_action = f"{self._url}/login/key" if offers_key else ""
        page = partial(pages.identify, issuers, key_action, wrong=wrong)
        return self._with_form(request, upstream, flow, 401 if wrong else 200, page)

    def _with_form(
        self, request: Request, upstream: str, flow: str, status: int, page: Callable[[Mapping[str, str]], str]
    ) -> Response:
        """Answers with a page whose form only this browser can submit (``_own_form``). *page* writes it with the
        hidden fields that it is given."""
        token = request.cookies.get(self._cookies.form) or secrets.token_urlsafe(24)
        answer = HTMLResponse(page({"u": upstream, "f": flow, "t": token}), status, headers=dict(pages.OF_FORMS))
        self._cookies.put(answer, self._cookies.form, token, LIFE_S)
        return answer

    async def _own_form(self, request: Request) -> Mapping[str, str]:
        """The form of a page that this browser was given: nobody signs a browser in from elsewhere. Raises
        LoginRefused."""
        form = await _form(request)
        if not is_same_secret(request.cookies.get(self._cookies.form, ""), form.get("t", "")):
            raise LoginRefused("forged")
        return form

    async def _session(self, request: Request) -> BrowserSession | None:
        cookie = request.cookies.get(self._cookies.browser, "")
        session = await self._logins.browsers.find(cookie) if cookie else None
        if session is None:
            return None
        # It lasts no longer than what it began with.
        by_key = Identity(session.actor, (), session.key_id)
        if not self._logins.vouches_for(session) or not (session.issuer or self._authenticator.stands(by_key)):
            await self._logins.browsers.end(cookie)
            return None
        return session

    # What goes wrong.

    async def refused(self, request: Request, refusal: LoginRefused) -> Response:
        if refusal.reason == "other_actor":
            return await self._others(request)
        status, title, sentence = _WORDS[refusal.reason]
        if refusal.reason == "other_issuer":
            self._audit.connection("", request.path_params.get("upstream", ""), "failed: another issuer", "failed")
        return _said(status, title, sentence)

    def not_begun(self, request: Request, failure: LoginFailure) -> None:
        """Counts a login whose page found no way to the issuer."""
        upstream = request.path_params.get("upstream", "")
        if self._logins.has(upstream):
            self._logins.counts.not_begun(upstream, failure)

    async def _others(self, request: Request) -> Response:
        session = await self._session(request)
        actor = session.actor if session is not None else ""
        upstream = request.path_params.get("upstream", "")
        self._audit.connection(actor, upstream, "refused: the link of another caller", "denied")
        page = partial(pages.others, actor, f"{self._url}/login/out")
        return self._with_form(request, upstream, request.query_params.get("f", ""), 403, page)


def _page(connect: ConnectPages, answer: Answer) -> Answer:
    async def page(request: Request) -> Response:
        try:
            # The middleware takes any port of this machine, where others' pages may be.
            if request.method == "POST" and request.headers.get("origin", connect.origin) != connect.origin:
                raise LoginRefused("forged")
            return await answer(request)
        except LoginRefused as refusal:
            return await connect.refused(request, refusal)
        except LoginFailure as failure:
            log.warning("a page of a login: %s", failure.detail)
            connect.not_begun(request, failure)
            return _said(502, "The login failed", f"Nothing was connected: {failure.why}.", "Try again in a while.")
        except StoreUnavailable:
            return _said(503, *_AWAY)

    return page


def _shown(server: str, issuer: str, page: str, scopes: Iterable[str]) -> str:
    """The spelling of these on a page."""
    return row_key("consent", server, issuer, page, *sorted(scopes))


async def _form(request: Request) -> Mapping[str, str]:
    """The fields of a form; none for anything else."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        return {}
    body = await read_short(request.receive, _MOST_BYTES)
    try:
        return dict(parse_qsl((body or b"").decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS))
    except ValueError:
        return {}


def _came(request: Request) -> Mapping[str, str]:
    return came_of(request.query_params.multi_items()) if len(request.url.query) <= _MOST_QUERY else {}


def _onward(url: str) -> Response:
    return HTMLResponse(pages.onward(url, urlsplit(url).netloc), headers=dict(pages.HEADERS))


def _said(status: int, title: str, *sentences: str, headers: Mapping[str, str] | None = None) -> Response:
    return HTMLResponse(pages.said(title, *sentences), status, {**pages.HEADERS, **(headers or {})})

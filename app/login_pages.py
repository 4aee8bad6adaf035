"""The pages on which a person connects an account: plain HTML without scripts, readable in any browser.

Every text of others (hosts, scopes) is bounded, and shown as text. A page says in which words a step was refused, and
what helps; never why an issuer said something, nor in its words.
"""

from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape

from wicketgate.login.authorize import MAX_SCOPE

_STYLE = """:root{color-scheme:light dark;--ink:#1b1f24;--soft:#57606a;--paper:#fff;--line:#d0d7de;--go:#0a5bb8;
--on:#fff}@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9da7b1;--paper:#0d1117;--line:#3d444d;
--go:#79b8ff;--on:#0d1117}}
*{box-sizing:border-box}body{margin:0;background:var(--paper);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:34rem;margin:0 auto;padding:2rem 1rem}h1{font-size:1.35rem;line-height:1.3;margin:0 0 1rem}
p{margin:0 0 1rem}dl{margin:0 0 1rem;border:1px solid var(--line);border-radius:8px;padding:.75rem 1rem}
dt{color:var(--soft);font-size:.875rem}dd{margin:0 0 .5rem;overflow-wrap:anywhere}
form{margin:0 0 1rem;display:flex;flex-wrap:wrap;gap:.75rem;align-items:end}label{flex:1 1 100%;font-size:.875rem}
input[type=password]{display:block;width:100%;margin-top:.25rem;padding:.6rem;font:inherit;color:inherit;
background:var(--paper);border:1px solid var(--soft);border-radius:6px}
button{min-height:44px;padding:.5rem 1.25rem;font:inherit;border-radius:6px;border:1px solid var(--soft);
background:var(--paper);color:var(--ink);cursor:pointer}button.go{background:var(--go);border-color:var(--go);
color:var(--on)}a{color:var(--go)}.soft{color:var(--soft)}b{overflow-wrap:anywhere}"""

_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src 'sha256-{_STYLE_HASH}'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
    )
)

HEADERS: Mapping[str, str] = {
    "content-security-policy": _POLICY,
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
}
# With no-referrer browsers would send forms with ``Origin: null``, and every page could send one that looks the same.
OF_FORMS: Mapping[str, str] = {**HEADERS, "referrer-policy": "same-origin"}

_HOST_CHARS = 120


def consent(
    upstream: str,
    server_host: str,
    issuer_host: str,
    page_host: str,
    scopes: Iterable[str],
    actor: str,
    own_host: str,
    action: str,
    hidden: Mapping[str, str],
    *,
    for_all: bool = False,
) -> str:
    """The question whether the account may be connected. *action* is the address of its form, *hidden* has its hidden
    fields. *for_all*: it will be that of all callers."""
    # All of them, and each whole: what is left out would be agreed to unseen.
    asked = ", ".join(sorted(_bounded(scope, MAX_SCOPE) for scope in scopes)) or "what the server gives by itself"
    rows = (
        ("Tool server", f"{upstream} ({_bounded(server_host, _HOST_CHARS)})"),
        ("You log in at", _bounded(issuer_host, _HOST_CHARS)),
        ("Your browser is sent to", _bounded(page_host, _HOST_CHARS)),
        ("Wicketgate asks there for", asked),
        ("You come back to", own_host),
        ("You are signed in here as", actor),
    )
    who = (
        "by all callers of this gate who may use them"
        if for_all
        else ("whenever you, or an assistant with your credentials, call them")
    )
    return _page(
        f"Connect an account at {upstream} for all callers?" if for_all else f"Connect your account at {upstream}?",
        f"<dl>{''.join(f'<dt>{escape(name)}</dt><dd>{escape(value)}</dd>' for name, value in rows)}</dl>"
        f"<p>Tools of this server will then be called with your account, {who}. Connect it only if you have just asked"
        " for this yourself.</p>"
        + _form(
            action,
            hidden,
            '<button class="go" name="a" value="connect">Connect</button><button name="a" value="no">No</button>',
        ),
    )


def identify(actions: Sequence[tuple[str, str]], key_action: str, hidden: Mapping[str, str], wrong: str = "") -> str:
    """The question who this is. *actions* are addresses of forms with the hosts of issuers; *key_action* is empty where
    no caller has a key. *wrong* says why the attempt before was refused."""
    parts = [f'<p role="alert">{escape(wrong)}</p>'] if wrong else []
    parts.append("<p>To connect an account, say first who you are here. You will be asked before anything is done.</p>")
    for action, host in actions:
        button = f'<button class="go">Log in at {escape(_bounded(host, _HOST_CHARS))}</button>'
        parts.append(_form(action, hidden, button))
    if key_action:
        field = (
            '<label>Your key for this gate<input type="password" name="key" required autocomplete="off"'
            ' maxlength="500"></label><button class="go">Go on</button>'
        )
        parts.append(_form(key_action, hidden, field))
    if not actions and not key_action:
        parts.append("<p>Nobody can say so in a browser at this gate: its operator has configured no way.</p>")
    return _page("Who are you?", "".join(parts))


def onward(url: str, host: str) -> str:
    """The way to an issuer. A redirect of the form's own answer would be held to ``form-action`` all the way."""
    address = escape(url)
    head = f'<meta http-equiv="refresh" content="0;url={address}">'
    said = f'<p>You are being taken to <a href="{address}">{escape(_bounded(host, _HOST_CHARS))}</a>.</p>'
    return _page("One moment", said, head)


def said(title: str, *sentences: str) -> str:
    """A page without a question."""
    return _page(title, "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences))


def no_such_page(console: str) -> str:
    return _page("There is no such page", f'<p>Go to <a href="{escape(console)}">the console</a>.</p>')


def others(actor: str, action: str, hidden: Mapping[str, str]) -> str:
    """The refusal of a link that was made for someone else."""
    return _page(
        "This link is someone else’s",
        f"<p>You are signed in here as <b>{escape(actor)}</b>, and this link was made for another caller. Nothing was "
        "done.</p><p>If someone sent it to you, do not use it: your account would have become theirs to use. If it is"
        " your own, sign in as the one for whom your assistant called.</p>"
        + _form(action, hidden, "<button>Sign in as someone else</button>"),
    )


def _page(title: str, body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport"'
        f' content="width=device-width, initial-scale=1">{head}<title>{escape(title)} - Wicketgate</title>'
        f"<style>{_STYLE}</style></head><body><main><h1>{escape(title)}</h1>{body}</main></body></html>"
    )


def _form(action: str, hidden: Mapping[str, str], inside: str) -> str:
    fields = "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">' for name, value in hidden.items()
    )
    return f'<form method="post" action="{escape(action)}">{fields}{inside}</form>'


def _bounded(text: str, chars: int) -> str:
    """Printable ASCII alone: a letter that looks like another is no letter of a host or a scope."""
    plain = "".join(each if " " <= each <= "~" else "?" for each in text)
    return plain if len(plain) <= chars else f"{plain[: chars - 3]}..."

"""The pages of logins: what strangers can have the gate do, and what ends with a key."""

import asyncio

import pytest

from tests.contract.test_connected_accounts import Person, callback_of, hosted, link_of, plain_get
from tests.contract.test_connecting_in_a_browser import with_issuer
from tests.support.requirement import requirement
from tests.support.service import KEY, OTHER_KEY
from wicketgate.login.authorize import asked_scopes
from wicketgate.login.discovery import Discovery, Issuer, Resource
from wicketgate.login.steps import Distrusted
from wicketgate.net.challenge import Refusal

ANN = "wg_ann_0123456789012345678901234567890123456789"


@requirement("ACCESS-190", "ACCESS-226")
async def test_strangers_do_not_have_the_gate_ask_an_issuer_as_often_as_they_like() -> None:
    """Whoever sends the form makes both its cookie and its token."""
    async with with_issuer("ann") as (service, _, issuer):
        before = len(issuer.seen)
        person = Person()
        headers = {"cookie": f"wicketgate-{service.url.rpartition(':')[2]}-form=x", "origin": service.url}
        for _number in range(30):
            answer = await person.http.post(
                f"{service.url}/login/issuer/corp", data={"t": "x", "u": "accounts", "f": "x"}, headers=headers
            )
            assert answer.status_code in (200, 429)
        assert len(issuer.seen) - before <= 5


@requirement("ACCESS-226")
async def test_strangers_do_not_have_the_gate_try_codes_at_an_issuer_as_often_as_they_like() -> None:
    """Each way there is good for one, and a way costs a stranger one form."""
    async with with_issuer("ann") as (service, _, issuer):
        person = Person()
        page = f"wicketgate-{service.url.rpartition(':')[2]}"
        for number in range(30):
            asked = await person.http.post(
                f"{service.url}/login/issuer/corp",
                data={"t": "x", "u": "accounts", "f": "x"},
                headers={"cookie": f"{page}-form=x", "origin": service.url},
            )
            state = asked.text.partition("state=")[2].partition("&")[0]
            cookies = {f"{page}-login": asked.cookies[f"{page}-login"]}
            answer = await plain_get(f"{service.url}/login/callback?code=guess-{number}&state={state}", cookies)
            assert answer.status_code == (502 if number < 10 else 429)
        assert sum(target.startswith("/token") for target in issuer.seen) == 10


@requirement("ACCESS-192", "ACCESS-225")
async def test_one_answer_of_an_issuer_is_redeemed_once() -> None:
    """The cookie of a way to the issuer is used up with it: no stranger tries codes there with the gate's secret."""
    async with with_issuer("ann") as (service, _, issuer):
        person = Person()
        await person.open(await link_of(service, issuer.token(aud="gate")))
        await person.send(0)
        await person.go_on()
        back = person.link_of("ann")
        state = back.partition("state=")[2].partition("&")[0]
        cookies = {cookie.name: cookie.value or "" for cookie in person.http.cookies.jar}
        for number in range(20):
            await plain_get(f"{service.url}/login/callback?code=guess-{number}&state={state}", cookies)
        assert sum(target.startswith("/token") for target in issuer.seen) == 1


@requirement("ACCESS-227")
@pytest.mark.parametrize("scopes", [[f"a{n:03}" for n in range(201)], ["a" * 195 + ".admin"]])
def test_more_than_a_person_can_be_shown_is_not_asked_for(scopes: list[str]) -> None:
    issuer = Issuer("https://as.example.net", "https://as.example.net/token")
    found = Discovery(Resource("https://mcp.example.net"), issuer)
    with pytest.raises(Distrusted):
        asked_scopes(found, Refusal(401, {"scope": " ".join(scopes)}), (), ())


@requirement("ACCESS-186")
@pytest.mark.parametrize(
    "query",
    [
        "",
        "code=x",
        "state=x",
        "state={state}",
        "code=x&code=y&state={state}",
        "code=x&state={state}&state=y",
        "error=<script>&state={state}",
        "code=%00%ff&state={state}",
        "code=" + "x" * 20_000 + "&state={state}",
        "state=" + "." * 3_000,
        "state=%F0%9F%98%80&code=x",
    ],
)
async def test_garbage_at_the_callback_is_a_page_and_never_an_error_of_ours(query: str) -> None:
    async with hosted() as (service, server):
        person = Person()
        await person.sign_in(await link_of(service))
        await person.send(a="connect")
        [state] = [cookie.value for cookie in person.http.cookies.jar if "state" in cookie.name]
        answer = await person.open(f"{service.url}{callback_of(server)}?{query.format(state=state)}")
        assert answer.status_code in (400, 403, 409, 410, 414, 431, 502), query
        assert "<script>" not in answer.text
        assert server.tokens == {}
        for header in ("content-security-policy", "cache-control"):
            assert header in answer.headers, (query, answer.status_code)


@requirement("ACCESS-184", "ACCESS-163", "ACCESS-186")
async def test_two_tabs_of_one_person_and_a_double_callback_end_in_one_grant() -> None:
    async with hosted() as (service, server):
        person = Person()
        await person.sign_in(await link_of(service))
        await person.send(a="connect")
        await person.go_on()
        server.issuer.redirect = f"{service.url}/elsewhere"
        back = str((await person.choose("ann")).url).replace("/elsewhere", callback_of(server))
        cookies = {cookie.name: cookie.value or "" for cookie in person.http.cookies.jar}
        pages = await asyncio.gather(*(plain_get(back, cookies) for _ in range(8)))
        assert sorted(page.status_code for page in pages) == [200, *[409] * 7]
        assert len(server.issuer.refresh) == 1


@requirement("ACCESS-184")
async def test_a_link_after_a_logout_of_another_person_in_the_same_browser_stays_theirs() -> None:
    """Ben agreed in this browser, then ann signed in: ben's way back connects nothing for her."""
    async with hosted() as (service, server):
        person = Person()
        await person.sign_in(await link_of(service, OTHER_KEY), OTHER_KEY)
        await person.send(a="connect")
        await person.go_on()
        server.issuer.redirect = f"{service.url}/elsewhere"
        back = str((await person.choose("ben")).url).replace("/elsewhere", callback_of(server))
        # Another person signs in, over the page for links of others.
        link = await link_of(service, KEY)
        await person.open(link)
        await person.send()
        await person.open(link)
        await person.send(key=KEY)
        refused = await person.open(back)
        assert refused.status_code == 403
        assert server.issuer.codes and server.tokens == {}

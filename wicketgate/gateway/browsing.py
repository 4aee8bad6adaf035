"""Answers to a browse: the cards that a caller is shown for words or at a path, in the order of its session
(BROWSE-1 to BROWSE-40)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, TypeVar

from wicketgate.access.policy import AccessPolicy, Hidden
from wicketgate.call_state import SessionStore
from wicketgate.catalog.card import ChoiceCard, cache_order
from wicketgate.catalog.card_lines import browse_lines
from wicketgate.catalog.catalog import Catalog
from wicketgate.catalog.graph import is_root, parse_path
from wicketgate.catalog.learned_words import Learned
from wicketgate.catalog.ranking import Ranking
from wicketgate.catalog.router import Router, weights_for
from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.shortlist import (
    MOST_SHOWN,
    NAMED_BEST,
    NOTHING_MATCHES,
    answer_text,
    best_namespaces,
    count_deserved,
    hints,
    is_clear,
    with_calls,
)
from wicketgate.catalog.tool_id import Visible, namespace_of
from wicketgate.gateway.first_logins import FirstLogins, card_of
from wicketgate.gateway.learning import Learning
from wicketgate.gateway.snapshot import LARGE, Snapshot
from wicketgate.heavy_work import run_queued
from wicketgate.ports import CallContext
from wicketgate.tokens import TokenCounter

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_FEW_POSTINGS = 10_000
"""A query whose words have as many is ranked in a few milliseconds, on the loop."""


class _Ranked(Protocol[T_co]):
    """``Router.route`` or ``Router.explained``."""

    def __call__(
        self, router: Router, query: str, k: int, visible: Visible | None, /, *, learned: Learned | None
    ) -> T_co: ...


@dataclass(frozen=True, slots=True)
class Browse:
    """The cards of one browse, in the order in which they are shown.

    *spared_chars*: the length of the definitions of all tools that the caller may use, which are not shown. *written*
    is the text, if it is there already. *seen*: ids of those that are as this session was sent them before.
    """

    cards: tuple[ChoiceCard, ...]
    hint: str = ""
    spared_chars: int = 0
    written: str | None = None
    seen: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The words for a model: a line for each card, then the *hint*, if there is one (CARD-32). Written when asked
        for, as thousands of cards take long (BROWSE-40)."""
        return browse_lines(self.cards, self.hint) if self.written is None else self.written


@dataclass(eq=False, repr=False)
class Browsing:
    """Browses the catalog in force, which *in_force* gives with the rules. *sessions* keep what each session was shown;
    *cache_stable* decides the order of cards where a call's context does not."""

    _in_force: Callable[[], tuple[Snapshot, AccessPolicy]]
    _sessions: SessionStore
    _tokens: TokenCounter
    _learning: Learning
    _first_logins: FirstLogins
    cache_stable: bool

    def rank(self, query: str, k: int, context: CallContext) -> list[tuple[str, float]]:
        """The ids of the *k* tools that fit the words best, with their scores, of those that the caller may use."""
        snapshot, access = self._in_force()
        visible = snapshot.audience(access, context.identity).visible
        return snapshot.catalog.router.route(query, k, visible, learned=self._learning.words(context))

    async def rank_beside(self, query: str, k: int, context: CallContext) -> list[tuple[str, float]]:
        """Return the same as ``rank``; a query whose words are frequent is ranked off the loop (BROWSE-77)."""
        router = self._in_force()[0].catalog.router
        if router.work(query) <= _FEW_POSTINGS:
            return self.rank(query, k, context)
        return await self._off_the_loop(Router.route, query, k, context)

    async def rank_explained(self, query: str, k: int, context: CallContext) -> Ranking:
        """Return the same as ``rank``, with the reasons; off the loop before a large catalog (OPS-300)."""
        snapshot, access = self._in_force()
        if len(snapshot.catalog.items) > LARGE:
            return await self._off_the_loop(Router.explained, query, k, context)
        visible = snapshot.audience(access, context.identity).visible
        return snapshot.catalog.router.explained(query, k, visible, learned=self._learning.words(context))

    async def _off_the_loop(self, ranked: "_Ranked[T]", query: str, k: int, context: CallContext) -> T:
        """The result of *ranked* before the catalog and the rules in force, which may be others than when it began
        (BROWSE-41)."""
        while True:
            snapshot, access = in_force = self._in_force()
            router, visible = snapshot.catalog.router, snapshot.audience(access, context.identity).visible
            learned = self._learning.words(context)
            # The learned words change while the thread reads.
            fixed = None if learned is None else weights_for(query, learned)
            ranking = partial(ranked, router, query, k, visible, learned=fixed)
            found = await run_queued(ranking, context.identity.actor)
            if self._in_force() == in_force:
                return found
            await self.prepare(context)

    async def prepare(self, context: CallContext, path: object = None) -> None:
        """Work out, off the loop if it takes long, what a browse of *path* or of words needs: before a large catalog
        await this first, and no browse holds the loop (BROWSE-40)."""
        await self._first_logins.look(context)
        # Another catalog may be in force by the time one is prepared.
        prepared = None
        while prepared is not (in_force := self._in_force())[0]:
            prepared, access = in_force
            await prepared.prepare(access, context.identity, path)

    async def prepare_call(self, tool_id: str, context: CallContext) -> None:
        """As ``prepare``, before a call of *tool_id*: what the caller may see is asked for only where it may not see
        that, whatever the number of callers (BROWSE-78)."""
        snapshot, access = self._in_force()
        item = snapshot.catalog.get(tool_id)
        if item is None or isinstance(access.decide(context.identity, item.names), Hidden):
            await self.prepare(context)
        else:
            await self._first_logins.look(context)

    async def query(self, query: str, top_k: int | None, context: CallContext) -> Browse:
        """The *top_k* tools that fit the words best, of those that the caller may use (BROWSE-1); with None, as many
        as their scores deserve (BROWSE-30)."""
        ranked = await self.rank_beside(query, max(top_k or 0, MOST_SHOWN), context)
        browse, best = await self._answer(ranked, top_k, context, stable=self.is_stable(context))
        self._learning.browsed(context, query, best)
        named = self._first_logins.cards(context, query)
        if not browse.cards and not named:
            named = self._first_logins.some_cards(context)
        # Behind the others, whose order and text stay as they are.
        return replace(browse, cards=(*browse.cards, *named), written=None) if named else browse

    async def preview(self, query: str, context: CallContext) -> tuple[Browse, Ranking]:
        """As ``query`` gives it best first, with the reasons, and nothing is remembered of it: for anyone who looks
        at what a model would get."""
        ranking = await self.rank_explained(query, MOST_SHOWN, context)
        return (await self._answer(_scores(ranking), None, context, stable=False))[0], ranking

    async def query_explained(self, query: str, context: CallContext) -> tuple[Browse, Ranking]:
        """As ``query`` gives it, with the reasons."""
        ranking = await self.rank_explained(query, MOST_SHOWN, context)
        browse, best = await self._answer(_scores(ranking), None, context, stable=self.is_stable(context))
        self._learning.browsed(context, query, best)
        return browse, ranking

    async def path(self, path: str, context: CallContext) -> Browse:
        """The children of *path* (BROWSE-12). Raises PathInvalid or PathNotFound."""
        snapshot, access = self._in_force()
        audience = snapshot.audience(access, context.identity)
        parts = parse_path(path)
        waiting = self._first_logins.shown_to(context.identity)
        if len(parts) == 1 and parts[0] in waiting:
            return Browse((card_of(parts[0]),), spared_chars=audience.definition_chars)
        cards = audience.cards_at(parts)
        if self.is_stable(context):
            cards = self._in_session_order(snapshot.catalog, cards, context)
        if is_root(parts):
            cards = (*cards, *map(card_of, waiting))
        elif len(cards) == 1:
            text, hint = answer_text(
                cards, await _calls(snapshot, cards[0]), self._tokens, snapshot.catalog.line_tokens
            )
            return Browse(cards, hint, audience.definition_chars, text)
        return Browse(cards, spared_chars=audience.definition_chars)

    def namespaces(self, context: CallContext) -> list[str]:
        """The namespaces that this caller may browse, and those of configured servers without tools so far, sorted: the
        same before and after a server connects, or an account is connected there."""
        snapshot, access = self._in_force()
        own = snapshot.audience(access, context.identity).namespaces()
        return sorted({*own, *map(namespace_of, self._first_logins.unread(context.identity))})

    def is_stable(self, context: CallContext) -> bool:
        """True where the cards of this caller's sessions keep their order (BROWSE-27)."""
        return self.cache_stable if context.cache_stable is None else context.cache_stable

    def mark_seen(self, item: SelectableItem, context: CallContext) -> None:
        """Note that this session has been sent the definition of *item*, or has run it."""
        if self.is_stable(context):
            self._sessions.update(context.session, lambda seen: (None, seen.hydrated(item.id, item.digest)))

    async def _answer(
        self, ranked: Sequence[tuple[str, float]], top_k: int | None, context: CallContext, *, stable: bool
    ) -> tuple[Browse, Sequence[str]]:
        """The answer to a query for which tools are *ranked*, and the ids in it, best first."""
        snapshot, access = self._in_force()
        catalog, audience = snapshot.catalog, snapshot.audience(access, context.identity)
        scores = [score for _, score in ranked]
        most = count_deserved(scores) if top_k is None else top_k
        best = [catalog.card(tool_id, score) for tool_id, score in ranked[:most]]
        cards = self._in_session_order(catalog, best, context) if stable else tuple(best)
        # A hint is for what the order or the scores do not tell.
        named = [card.id for card in best[:NAMED_BEST]] if stable else []
        elsewhere = None
        if not is_clear(scores):
            elsewhere = best_namespaces(scores, [catalog.items[tool_id].namespace for tool_id, _ in ranked])
        forms = hints(named, elsewhere) if ranked else iter([NOTHING_MATCHES])
        if best and elsewhere is None:
            forms = with_calls(forms, await _calls(snapshot, best[0]))
        text, hint = answer_text(cards, forms, self._tokens, catalog.line_tokens)
        # A card that was not sent before is the one that was made above.
        made = {card.id: card for card in best}
        seen = frozenset(card.id for card in cards if card.id in made and card is not made[card.id])
        return Browse(cards, hint, audience.definition_chars, text, seen), [card.id for card in best]

    def _in_session_order(
        self, catalog: Catalog, cards: Sequence[ChoiceCard], context: CallContext
    ) -> tuple[ChoiceCard, ...]:
        items = catalog.items
        digests = {card.id: items[card.id].digest for card in cards if card.id in items}
        return self._sessions.update(context.session, lambda seen: cache_order(seen, cards, digests))


async def _calls(snapshot: Snapshot, card: ChoiceCard) -> Iterator[str]:
    """The forms of a call of the tool of *card* (BROWSE-90); none for a level."""
    item = snapshot.catalog.items.get(card.id)
    expected = await snapshot.expected(item) if item is not None else None
    return iter(()) if item is None or expected is None else expected.calls(item.name)


def _scores(ranking: Ranking) -> list[tuple[str, float]]:
    return [(reason.tool_id, reason.score) for reason in ranking.reasons]

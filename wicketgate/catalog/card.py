"""The card, which a model is shown of a tool: ten fields, one line, at most 80 tokens (CARD-19 to CARD-25); and the
order of cards.

Cards come best first (CARD-25), or where that is asked for, so that a prompt cache keeps its prefix (BROWSE-20 to
BROWSE-28)."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal

from wicketgate.catalog.selectable import SelectableItem
from wicketgate.catalog.tool_id import ToolId
from wicketgate.errors import CatalogError
from wicketgate.tokens import ELLIPSIS, TokenCounter, shipped_token_counter, truncate

TARGET_TOKENS = 60
HARD_CAP_TOKENS = 80

CardKind = Literal["tool", "agent", "skill", "internal"]


@dataclass(frozen=True, slots=True)
class ChoiceCard:
    """Exactly the fields of CARD-19. Build it with the functions below: they keep its bounds."""

    id: str
    name: str
    description: str
    tags: tuple[str, ...]
    kind: CardKind
    namespace: str
    has_schema: bool
    score: float | None = None
    cost_hint: float = 0.0
    side_effects: bool = False

    def scored(self, score: float | None) -> "ChoiceCard":
        """As ``replace``, five times faster."""
        return ChoiceCard(
            *(self.id, self.name, self.description, self.tags, self.kind, self.namespace, self.has_schema),
            *(score, self.cost_hint, self.side_effects),
        )

    def described(self, description: str) -> "ChoiceCard":
        """As ``scored``."""
        return ChoiceCard(
            *(self.id, self.name, description, self.tags, self.kind, self.namespace, self.has_schema),
            *(self.score, self.cost_hint, self.side_effects),
        )


def build_card(item: SelectableItem, tokens: TokenCounter, score: float | None = None) -> ChoiceCard:
    """Makes the card of a tool, its description shortened towards 60 tokens for the rendered line.

    Raises CatalogError when the rest of the card alone passes the hard cap (CARD-23): no field is ever dropped.
    """
    return counted_card(item, tokens, score)[0]


def counted_card(item: SelectableItem, tokens: TokenCounter, score: float | None = None) -> tuple[ChoiceCard, int]:
    """As ``build_card``, with the tokens of the card's line and its line break: ``line_tokens``, known from building
    it."""
    bare = ChoiceCard(
        id=item.id,
        name=display_name(item),
        description="",
        tags=_card_tags(item.tags),
        kind=item.kind,
        namespace=item.namespace,
        has_schema=_names_arguments(item.args_schema),
        score=score,
        cost_hint=item.cost_hint,
        side_effects=item.side_effects,
    )
    return _described(bare, item.description, tokens)


def build_inner_card(
    path: str, label: str, namespace: str, tool_count: int, members: Sequence[str], tokens: TokenCounter
) -> ChoiceCard:
    """Makes the card of a level of the graph: its own path as id, so that it can be browsed as it is.

    The description gives the number of tools below and names as many *members*, whole, as the target of 60 tokens
    allows. It fits for every path that the graph makes (``MAX_INNER_PATH_CHARS``).
    """
    bare = ChoiceCard(path, label[:_MAX_NAME_CHARS], "", (), "internal", namespace, has_schema=False)

    def naming(shown: int) -> ChoiceCard:
        names = [*members[:shown], *([ELLIPSIS] if shown < len(members) else [])]
        listed = f": {', '.join(names)}" if shown else ""
        return bare.described(f"{tool_count} {'tool' if tool_count == 1 else 'tools'}{listed}")

    low, high = 0, min(len(members), _MAX_MEMBERS)
    while low < high:
        middle = (low + high + 1) // 2
        if tokens.count(render_card(naming(middle))) <= _LINE_TARGET:
            low = middle
        else:
            high = middle - 1
    return naming(low)


def display_name(item: SelectableItem) -> str:
    """Returns the name for people to read: the name in the id, or the upstream's own where that was mapped into it.

    At most 64 characters, one line (CARD-20). It is never what a tool is found or run by.
    """
    if item.kind == "skill" or item.upstream_name.endswith(item.name):
        return item.name[:_MAX_NAME_CHARS]
    # What is cut before it is folded bounds what a huge name can cost.
    own = one_line(item.upstream_name[:_MAX_NAME_READ_CHARS])[:_MAX_NAME_CHARS].strip()
    return own or item.name[:_MAX_NAME_CHARS]


def short_description(description: str, budget_tokens: int, tokens: TokenCounter) -> str:
    """Returns one line of at most *budget_tokens*, cut as a card's description is. Of a long text only the beginning is
    read."""
    return truncate(_one_line_of(description, budget_tokens * _MAX_CHARS_A_TOKEN), budget_tokens, tokens)


def member_name(item: SelectableItem) -> str | None:
    """Returns the name by which an inner card lists a tool whose own name is in another script.

    The segment of such a tool says little. The name has at most 32 characters, and none that parts the members of a
    list; None where the segment says enough.
    """
    if item.kind == "skill" or item.upstream_name.isascii():
        return None
    shown = "".join(char if _in_a_word(char) else " " for char in display_name(item))
    return " ".join(shown.split())[:_MAX_MEMBER_CHARS].strip() or None


def render_card(card: ChoiceCard) -> str:
    """Writes one line for a prompt: the id, the facts, then the description, which nothing follows.

    The id holds namespace and name. Kind is written unless it is ``tool``, cost above zero, side effects when true,
    a tool without arguments as such, the score and the protocol of the server never (CARD-21).
    """
    facts = [
        *([card.kind] if card.kind != "tool" else []),
        *(["no arguments"] if card.kind == "tool" and not card.has_schema else []),
        *(["side effects"] if card.side_effects else []),
        *([f"cost {card.cost_hint:g}"] if card.cost_hint > 0 else []),
    ]
    tags = [tag for tag in card.tags if tag != "mcp"]
    return (
        card.id
        + (f" [{', '.join(tags)}]" if tags else "")
        + (f" ({', '.join(facts)})" if facts else "")
        + (f" — {card.description}" if card.description else "")
    )


def line_tokens(line: str, tokens: TokenCounter) -> int:
    """The tokens of *line* with the line break behind it. Those of several lines add up exactly: no line begins with a
    space, so cl100k_base cuts behind each break."""
    return tokens.count(f"{line}\n")


def as_line(card: ChoiceCard) -> tuple[object, ...]:
    """The fields that ``render_card`` writes."""
    return card.id, card.kind, card.has_schema, card.side_effects, card.cost_hint, card.tags, card.description


def render_cards(cards: Iterable[ChoiceCard]) -> str:
    """Writes the lines of a ``tool_browse`` answer: n cards take at most 80 n tokens, line breaks included."""
    return "\n".join(render_card(card) for card in cards)


def card_json(card: ChoiceCard) -> dict[str, Any]:
    """Returns the JSON form, keys as CARD-19 lists them; an absent score is left out."""
    body: dict[str, Any] = {
        "id": card.id,
        "name": card.name,
        "description": card.description,
        "tags": list(card.tags),
        "kind": card.kind,
        "namespace": card.namespace,
        "has_schema": card.has_schema,
    }
    if card.score is not None:
        body["score"] = card.score
    body["cost_hint"] = card.cost_hint
    body["side_effects"] = card.side_effects
    return body


def one_line(text: str) -> str:
    """Folds every space, line break and control of *text* into single spaces, and removes invisible characters.

    So no upstream can forge a second card or hide words in its own.
    """
    # Most texts are plain; only the others are looked at by character.
    if not (text.isascii() and text.isprintable()):
        text = "".join(_visible(char) for char in text)
    return " ".join(text.split())


_MAX_NAME_CHARS = 64
_MAX_NAME_READ_CHARS = 1000
_MAX_MEMBER_CHARS = 32
_MAX_TAGS = 5
_MAX_TAG_CHARS = 24
# More names than this never fit into 60 tokens.
_MAX_MEMBERS = 24

# One token of the cap is kept for the line break behind the card.
_LINE_TARGET = TARGET_TOKENS - 1
_LINE_CAP = HARD_CAP_TOKENS - 1
# A long id must not leave its tool without a word about it: the description may then go beyond the target.
_MIN_DESCRIPTION_TOKENS = 12
# More of a description than 60 tokens of prose ever cover; it bounds what hostile text can cost.
_MAX_DESCRIPTION_CHARS = 2000
_MAX_CHARS_A_TOKEN = 20

# They do not show, though Unicode counts them as letters, marks or symbols: fillers, joiners and selectors.
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)


# What a schema without arguments may say all the same.
_SAYS_NOTHING = frozenset({"type", "additionalProperties", "title", "description", "$schema", "$id"})


def _names_arguments(schema: Mapping[str, Any]) -> bool:
    """True unless a tool with this schema is called without arguments."""
    return any(value for key, value in schema.items() if key not in _SAYS_NOTHING)


def _visible(char: str) -> str:
    category = unicodedata.category(char)
    if category in ("Cc", "Zl", "Zp", "Zs"):
        return " "
    return "" if category[0] == "C" or _INVISIBLE.match(char) else char


def _in_a_word(char: str) -> bool:
    return unicodedata.category(char)[0] in "LMN" or char in "_-./"


def _card_tags(tags: Iterable[str]) -> tuple[str, ...]:
    # Brackets and commas part the tags of a rendered line, so they cannot stand inside one.
    folded = (one_line(re.sub(r"[\[\](),]", " ", tag))[:_MAX_TAG_CHARS].strip() for tag in tags)
    return tuple(sorted({tag for tag in folded if tag})[:_MAX_TAGS])


def _one_line_of(description: str, most_chars: int) -> str:
    cut = len(description) > most_chars
    return one_line(description[:most_chars]) + (ELLIPSIS if cut else "")


def _described(bare: ChoiceCard, description: str, tokens: TokenCounter) -> tuple[ChoiceCard, int]:
    text = _one_line_of(description, _MAX_DESCRIPTION_CHARS)
    card = bare.described(text)
    count, with_break = _line_tokens(card, tokens)
    if count <= _LINE_TARGET:
        return card, with_break  # without its text the line costs no more
    fixed, _ = _line_tokens(bare, tokens)
    if fixed > _LINE_CAP:
        raise CatalogError(
            f"the card of {bare.id} passes the hard cap of {HARD_CAP_TOKENS} tokens: {fixed} without text"
        )
    line_budget = min(_LINE_CAP, max(_LINE_TARGET, fixed + _MIN_DESCRIPTION_TOKENS))
    if count <= line_budget:
        return card, with_break
    budget = line_budget - fixed
    # What joins the two parts takes tokens as well: shorten until the whole line fits, at worst to nothing.
    while True:
        card = bare.described(truncate(text, budget, tokens))
        count, with_break = _line_tokens(card, tokens)
        if count <= line_budget:
            return card, with_break
        budget -= count - line_budget


def _line_tokens(card: ChoiceCard, tokens: TokenCounter) -> tuple[int, int]:
    """The tokens of the line, so that its line break costs one more and never two; and those of both together.

    Signs at its end are read as one piece with the break, which can cost more than the two parts.
    """
    line = render_card(card)
    count, end = tokens.count(line), line[-1]
    if end.isalnum():
        return count, count + 1
    if end.isascii() and line[-2:-1].isalnum():
        return count, count - 1 + _sign_with_break(end, tokens.count)
    with_break = line_tokens(line, tokens)
    return max(count, with_break - 1), with_break


@lru_cache(maxsize=256)
def _sign_with_break(sign: str, count: Callable[[str], int]) -> int:
    return count(f"{sign}\n")


CACHE_BREAKPOINT = ChoiceCard("__cache_breakpoint__", "__cache_breakpoint__", "", (), "internal", "", has_schema=False)


@dataclass(frozen=True, slots=True)
class SeenCard:
    """A card as it was first sent, and its source: the digest of the tool's definition, or for a level of the graph the
    card itself, which has no definition. A *card* of None was not sent yet; a *source* of None fits any."""

    source: object
    card: ChoiceCard | None


@dataclass(frozen=True, slots=True)
class SeenCards:
    """The tools that a session has browsed or hydrated, by id."""

    cards: Mapping[str, SeenCard] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def ids(self) -> frozenset[str]:
        return frozenset(self.cards)

    def hydrated(self, tool_id: str, digest: str = "") -> "SeenCards":
        """Adds a tool that was hydrated with success (BROWSE-23); its card is frozen when it is first sent."""
        known = self.cards.get(tool_id)
        if known is not None and (not digest or known.source in (digest, None)):
            return self
        return self._with({tool_id: SeenCard(digest or None, None)})

    def _with(self, cards: Mapping[str, SeenCard]) -> "SeenCards":
        return SeenCards(MappingProxyType({**self.cards, **cards}))


def cache_order(
    seen: SeenCards, cards: Iterable[ChoiceCard], digests: Mapping[str, str] = MappingProxyType({})
) -> tuple[tuple[ChoiceCard, ...], SeenCards]:
    """Returns the cards in sending order, and the cards that the session has then seen (BROWSE-20).

    Cards seen before come first, as they were first sent; then the marker, if there is something on both sides of
    it; then the new ones. A card whose source differs from that of the seen one is new, and takes its place
    (BROWSE-26). Each part is ascending by id; the rank is told beside the cards (BROWSE-31). *digests* are by id those
    of the definitions of tools. *cards* are already chosen, so nothing is cut here.
    """
    prefix: list[ChoiceCard] = []
    suffix: list[ChoiceCard] = []
    unfrozen: dict[str, SeenCard] = {}
    for card in sorted(cards, key=lambda card: card.id):
        source: object = digests.get(card.id) or (card if card.score is None else card.scored(None))
        known = seen.cards.get(card.id)
        if known is None or known.source not in (source, None):
            suffix.append(card)
        elif known.card is not None:
            prefix.append(known.card)
            continue
        else:
            prefix.append(card)
        unfrozen[card.id] = SeenCard(source, card)
    marker = [CACHE_BREAKPOINT] if prefix and suffix else []
    return (*prefix, *marker, *suffix), seen._with(unfrozen) if unfrozen else seen


def make_choice_cards(
    items: Iterable[SelectableItem],
    *,
    scores: Mapping[str, float] | Mapping[ToolId, float] | None = None,
    max_cards: int | None = None,
    tokens: TokenCounter | None = None,
) -> list[ChoiceCard]:
    """Returns the cards of *items*, at most *max_cards*, each of at most 80 tokens; equal input gives equal bytes.

    With *scores* by id, the highest comes first, equal ones by id, and items without a score last. Without them the
    order of *items* stays. Only the cards that are returned are built. Raises CatalogError when one of them cannot
    fit; ``Catalog(items).all()`` has none of those.
    """
    if max_cards is not None and max_cards < 0:
        raise ValueError("max_cards must not be negative")
    chosen: Sequence[SelectableItem] = list(items)
    rated: Mapping[Any, float] = scores or {}
    if scores is not None:
        chosen = sorted(chosen, key=lambda item: (item.id not in rated, -rated.get(item.id, 0.0), item.id))
    counter = tokens or shipped_token_counter()
    return [build_card(item, counter, rated.get(item.id)) for item in chosen[:max_cards]]

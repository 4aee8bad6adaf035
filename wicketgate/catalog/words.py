"""The terms that a text is searched under, and those that mean nearly the same.

Nothing here knows the catalog: the terms of a text depend on that text alone, so one tool can be indexed or dropped
without reading the others.
"""

import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from inspect import unwrap
from itertools import chain

MAX_WORD_CHARS = 64
"""A longer text is an encoded blob, not a word, and is cut here."""


def terms(text: str) -> list[str]:
    """All terms of *text* in order, for names: ``getPullRequests`` and ``pull_requests`` share two.

    A word of two parts also stands whole, so that ``GitHub`` and ``github`` meet, and so do ``S3`` and ``s3``.
    """
    return _read_terms(text, _usual_terms)


def content_terms(text: str) -> list[str]:
    """The terms of *text* that say something: question words, politeness and the like are left out."""
    return _read_terms(text, _usual_content)


def requests(query: str) -> list[str]:
    """The parts of *query*, cut where one request ends and the next begins ("..., then ...")."""
    return [part for part in _NEXT_REQUEST.split(query) if part.strip()]


def stem(word: str) -> str:
    """A lower-case English word without its endings, so that verb, noun and doer meet: ``translat-e|ion|or|ing``.

    The result is a key, not a word. Short words, and words with digits or of other alphabets, stay as they are.
    """
    if len(word) <= 3 or not (word.isascii() and word.isalpha()):
        return word
    if word in _IRREGULAR:
        return _IRREGULAR[word]
    # Asked of the full word: in "formatting" the t is doubled, so its "at" belongs to the root.
    from_ate = word.endswith(_ATE_ENDINGS)
    word = _without_inflection(_singular(word))
    if word.endswith("ie") and len(word) > 4:
        return word[:-2] + "y"  # the plural does not tell "movie" from "movy", so both end alike
    if word.endswith("ification"):
        return word[:-7] + "y"
    word = _without_derivation(word)
    if word.endswith("is") and len(word) > 5:
        word = word[:-1] + "z"
    if from_ate and word.endswith("at") and len(word) >= 6:
        word = word[:-2]
    return _undoubled(word)


def synonyms(term: str) -> tuple[str, ...]:
    """Terms of the trade that are used for the same thing as the stemmed *term*."""
    return _SYNONYMS.get(term, ())


def deed(term: str) -> str | None:
    """The kind of deed that the stemmed *term* names as a verb: ``create``, ``delete``, ``read`` or ``change``."""
    return _DEEDS.get(term)


# ASCII letters and digits with anything beyond ASCII; a contracted ending (what's, I'll) is passed over.
_RUN = re.compile(r"([A-Za-z0-9\u0080-\U0010ffff]+)(?:'[a-z]{1,2}\b)?")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_MOST_UNFOLDED = 64
_USUAL_CHARS = 40
_ACCENT = re.compile("[\u0300-\u036f]")
_NEXT_REQUEST = re.compile(
    r"(?<=[.?!])\s+|[。！？]|\n+|,\s*(?=(?:and|then|also)\s)|\b(?:and then|after that|then)\b", re.IGNORECASE
)

# Scripts without spaces between words. Hangul has spaces, but its particles cling to the words.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff]"
)
_ATE_ENDINGS = ("ate", "ates", "ated", "ating", "ator", "ators", "ation", "ations")
_VOWEL = re.compile("[aeiouy]")


def _runs(text: str) -> list[str]:
    if not text.isascii():
        # Width and ligatures first, then accents, so that "ｃａｆé" is "cafe"; marks of other scripts carry meaning.
        # One ligature may stand for a sentence, so what comes of them is cut.
        unfolded = unicodedata.normalize("NFKC", text)[: _MOST_UNFOLDED + 2 * len(text)]
        decomposed = unicodedata.normalize("NFD", unfolded)
        text = unicodedata.normalize("NFC", _ACCENT.sub("", decomposed))
    return _RUN.findall(text)


def _read_terms(text: str, usual: Callable[[str], tuple[str, ...]]) -> list[str]:
    runs = _runs(text)
    # Descriptions repeat the same few thousand words. What is long hardly comes twice, and could fill the memory.
    if text.isascii() and max(map(len, runs), default=0) <= _USUAL_CHARS:
        return list(chain.from_iterable(map(usual, runs)))
    read = unwrap(usual)
    return [term for run in runs for term in (usual if len(run) <= _USUAL_CHARS and run.isascii() else read)(run)]


@lru_cache(maxsize=16_384)
def _usual_terms(run: str) -> tuple[str, ...]:
    return tuple(map(stem, _words(run)))


@lru_cache(maxsize=16_384)
def _usual_content(run: str) -> tuple[str, ...]:
    return tuple(stem(word) for word in _words(run) if word not in _STOP_WORDS)


def _words(run: str) -> list[str]:
    found = _ascii_words(run) if run.isascii() else _other_words(run)
    return [word[:MAX_WORD_CHARS] for word in found]


def _ascii_words(run: str) -> list[str]:
    parts = _PART.findall(run)
    if len(parts) == 1:
        return [run.lower()]
    whole = [run.lower()] if len(parts) == 2 else []
    return whole + [part.lower() for part in parts if len(part) > 1] or [run.lower()]


def _other_words(run: str) -> list[str]:
    """Words, and pairs of neighbours in scripts without spaces; what is neither letter nor digit parts them."""
    found: list[str] = []
    for piece in "".join(c if unicodedata.category(c)[0] in "LMN" else " " for c in run).split():
        if piece.isascii():
            found += _ascii_words(piece)
        elif not _UNSPACED.search(piece):
            found.append(piece.casefold())
        else:
            found += _pairs(piece)
    return found


def _pairs(piece: str) -> list[str]:
    """Character bigrams of the unspaced stretches of *piece*; a character that stands alone is kept alone."""
    spaced = _UNSPACED.sub(" ", piece).split()
    found = [word for part in spaced for word in (_ascii_words(part) if part.isascii() else [part.casefold()])]
    for stretch in "".join(c if _UNSPACED.match(c) else " " for c in piece).split():
        found += [stretch[i : i + 2] for i in range(max(1, len(stretch) - 1))]
    return found


def _singular(word: str) -> str:
    if not word.endswith("s") or word.endswith(("ss", "us", "is")):
        return word
    return word[:-3] + "y" if word.endswith("ies") and len(word) > 4 else word[:-1]


def _without_inflection(word: str) -> str:
    if word.endswith("ied") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith("ing") and len(word) > 5 and _VOWEL.search(word[:-3]):
        return _undoubled(word[:-3])
    if word.endswith("ed") and not word.endswith("eed") and len(word) > 4 and _VOWEL.search(word[:-2]):
        return _undoubled(word[:-2])
    return word


def _without_derivation(word: str) -> str:
    if word.endswith(("ization", "isation")):
        word = word[:-5]
    elif word.endswith("ion") and len(word) >= 8:
        word = word[:-3]
    elif word.endswith("ment") and len(word) >= 8:
        word = word[:-4]
    elif word.endswith(("er", "or")) and len(word) >= 6:
        word = word[:-2]
    return word[:-1] if word.endswith("e") and len(word) > 3 else word


def _undoubled(word: str) -> str:
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


_STOP_WORDS_TEXT = """
a about able actually all also am an and any anyone anything are as ask assist assistance at b be because been before
being but by can cannot could couldn d did didn do does doesn doing don done e each eg either else etc ever every for
from further g give given gives had has hasn have haven having he hello help her here hers hey hi him his how however
i ie if in into is isn it its just kindly know let like ll look looking m many may maybe me might mine more most much
must my myself need needs no nor not of on once one only or other our ours out over own please possible re really s
same shall she should show so some someone something such t tell than thank thanks that the their theirs them then
there these they this those through to too under until up upon us use used uses using ve very via want wants was way
we were what whats when where whether which while who whom whose why will wish with within without wonder wondering
would yes yet you your yours
"""
_STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())

_IRREGULAR = {
    "analyse": "analyz", "analyses": "analyz", "analysis": "analyz", "analytic": "analyz",
    "analytics": "analyz", "bought": "buy", "built": "build", "children": "child", "daily": "day",
    "data": "data", "embed": "embed", "found": "find", "hourly": "hour", "indices": "index", "made": "mak",
    "monthly": "month", "news": "news", "people": "person", "quarterly": "quart", "sent": "send",
    "series": "series", "sold": "sel", "weekly": "week", "written": "writ", "wrote": "writ", "yearly": "year",
}  # fmt: skip

# Strict on purpose: words that name the same action or thing in tool catalogs, not words that merely go together.
_GROUPS = """
create add new insert make; delete remove erase destroy; get fetch read retrieve obtain; list enumerate
search find lookup locate; update edit modify change alter; send deliver dispatch; start launch begin
stop halt terminate end; run execute invoke; display view; compute calculate; compare contrast; convert transform
verify validate check; cancel abort; book reserve; buy purchase; schedule calendar; deploy rollout; monitor watch track
suggest recommend; advice suggestion recommendation; translate language; summary summarize overview
kubernetes k8s aks; repository repo; database db; directory dir folder; file document doc
configuration config setting; environment env; authentication auth authorization; pull pr; container docker
virtual vm; credential secret password; token key; url link; page webpage website site
image picture photo visual graphic; movie film; song track music; video clip youtube; email mail; message msg
account user; price cost; job career employment; company business firm; car vehicle auto; trip travel
flight airfare; hotel accommodation lodging; food recipe meal; restaurant dining; doctor physician
medicine drug medication; weather forecast climate; stock share equity; cryptocurrency crypto bitcoin
currency forex; finance financial money; legal law; article paper publication; research study academic
lesson course tutorial; education study learn; student pupil; exam test quiz; workout fitness exercise
gift present; issue ticket; bug defect; task todo; meeting appointment event; team group; member participant
history log; organization org; metric measurement; size dimension; number quantity amount; location place address
city town; country nation; map navigation route direction; distance range; speed velocity; length duration; time date
information info detail
"""


# Only what shuts the other kinds out: "set" or "run" may do anything.
_DEED_WORDS = {
    "create": "create add new insert make post generate",
    "delete": "delete remove erase destroy",
    "read": "get fetch read retrieve obtain list enumerate search find lookup locate show view display",
    "change": "update edit modify change alter put patch",
}
_DEEDS = {stem(word): kind for kind, words in _DEED_WORDS.items() for word in words.split()}


def _synonym_table() -> dict[str, tuple[str, ...]]:
    table: dict[str, set[str]] = {}
    for group in re.split(r"[;\n]", _GROUPS.strip()):
        members = {stem(word) for word in group.split()}
        for member in members:
            table.setdefault(member, set()).update(members - {member})
    return {member: tuple(sorted(others)) for member, others in table.items()}


_SYNONYMS = _synonym_table()

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.requirement import requirement
from wicketgate.catalog.words import MAX_WORD_CHARS, content_terms, requests, stem, synonyms, terms

WORDS = st.text(string.ascii_lowercase, min_size=1, max_size=12)


@requirement("BROWSE-6")
@pytest.mark.parametrize("name", ["getPullRequests", "get_pull_requests", "get-pull-request", "GET.pull/request"])
def test_every_spelling_of_a_name_has_the_same_terms(name: str) -> None:
    assert terms(name) == ["get", "pul", "request"]


@requirement("BROWSE-6")
def test_a_word_of_two_parts_also_stands_whole() -> None:
    assert "github" in terms("GitHub")
    assert terms("github") == ["github"]
    assert set(terms("S3")) == set(terms("s3")) == {"s3"}


@requirement("BROWSE-6")
def test_an_acronym_ends_where_the_next_word_begins() -> None:
    assert terms("parseHTTPServerURL") == ["pars", "http", "serv", "url"]


@requirement("BROWSE-6")
@pytest.mark.parametrize(
    "family",
    [
        ("create", "creates", "created", "creating", "creation", "creator"),
        ("translate", "translation", "translator", "translating", "translated"),
        ("query", "queries"),
        ("notify", "notifies", "notified", "notification", "notifications"),
        ("organize", "organise", "organization", "organised"),
        ("install", "installs", "installing", "installed", "installation"),
        ("run", "running", "runs"),
        ("box", "boxes"),
        ("database", "databases"),
        ("status", "statuses"),
        ("analyze", "analysis", "analyse", "analyzing"),
        ("delete", "deletion", "deleting"),
        ("movie", "movies"),
        ("cookie", "cookies"),
        ("calorie", "calories"),
        ("zombie", "zombies"),
        ("day", "days", "daily"),
        ("month", "months", "monthly"),
        ("quarter", "quarterly"),
        ("year", "yearly"),
    ],
)
def test_words_of_one_family_meet_in_one_term(family: tuple[str, ...]) -> None:
    assert len({stem(word) for word in family}) == 1


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("add", "ad"),
        ("station", "stat"),
        ("formatting", "form"),
        ("format", "form"),
        ("order", "ord"),
        ("bus", "bu"),
        ("user", "use"),
        ("tie", "ty"),
    ],
)
def test_words_that_only_look_alike_stay_apart(one: str, other: str) -> None:
    assert stem(one) != stem(other)


@given(WORDS)
def test_a_stem_is_never_empty_or_longer_than_a_letter_more(word: str) -> None:
    assert 1 <= len(stem(word)) <= len(word) + 1


@requirement("BROWSE-7")
def test_politeness_and_question_words_say_nothing() -> None:
    assert content_terms("Could you please help me, I'd like to know what's the weather") == ["weath"]


def test_a_contracted_ending_is_passed_over_with_either_apostrophe() -> None:
    assert content_terms("what's new") == content_terms("what’s new") == ["new"]


@requirement("BROWSE-6")
def test_accents_and_width_do_not_matter() -> None:
    assert terms("Café") == terms("cafe") == terms("ｃａｆé")


def test_accents_of_other_scripts_are_kept() -> None:
    assert terms("がか") != terms("かか")
    assert terms("हिन्दी") == ["हिन्दी"]


@requirement("BROWSE-6")
def test_scripts_without_spaces_give_pairs_of_neighbours() -> None:
    assert terms("天気予報") == ["天気", "気予", "予報"]
    assert set(terms("天気")) <= set(terms("今日の天気は"))
    assert terms("猫") == ["猫"]


def test_particles_do_not_hide_a_korean_word() -> None:
    assert set(terms("날씨")) <= set(terms("날씨를 알려줘"))


def test_latin_words_inside_another_script_stand_alone() -> None:
    assert {"github", "の課", "課題"} <= set(terms("GitHubの課題を作成"))


def test_case_does_not_matter_in_any_alphabet() -> None:
    assert terms("ПОИСК Файлов") == terms("поиск файлов")


@requirement("BROWSE-7")
def test_a_plural_in_ies_has_the_synonyms_of_its_singular() -> None:
    assert synonyms(stem("movies")) == synonyms(stem("movie")) == (stem("film"),)


def test_synonyms_are_mutual_and_never_the_term_itself() -> None:
    for word in ("create", "delete", "search", "repo", "kubernetes", "email"):
        others = synonyms(stem(word))
        assert others
        for other in others:
            assert stem(word) in synonyms(other)
            assert other != stem(word)


def test_a_word_without_synonyms_has_none() -> None:
    assert synonyms("zzzz") == ()


def test_a_query_is_cut_where_one_request_ends() -> None:
    assert requests("Book a room. Then send a mail, and check the weather") == [
        "Book a room.",
        " send a mail",
        "and check the weather",
    ]
    assert requests("list pull requests") == ["list pull requests"]
    assert requests("天気を調べて。地図を開いて") == ["天気を調べて", "地図を開いて"]


@requirement("BROWSE-35")
def test_a_semicolon_does_not_end_a_request() -> None:
    one = "file system or file operations; create and save a markdown file"
    assert requests(one) == [one]
    assert requests("天気；地図") == ["天気；地図"]


@given(st.text(max_size=200))
def test_any_text_has_short_terms_without_spaces(text: str) -> None:
    found = terms(text)
    assert all(0 < len(term) <= MAX_WORD_CHARS + 1 and not term.isspace() for term in found)
    remaining = iter(found)
    assert all(term in remaining for term in content_terms(text))


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_terms_of_a_line_do_not_depend_on_the_next(one: str, other: str) -> None:
    assert terms(f"{one}\n{other}") == terms(one) + terms(other)


def test_a_lone_surrogate_and_a_blob_are_read_without_harm() -> None:
    assert terms("\ud800 list") == ["list"]
    assert terms("ab" * 50_000) == ["ab" * (MAX_WORD_CHARS // 2)]


@requirement("BROWSE-58")
def test_characters_that_stand_for_many_are_read_up_to_a_bound() -> None:
    assert len(terms("\ufdfa " * 2_000)) < 3_000
    assert terms("\ufb03\ufdfa") == terms(
        "ffi\u0635\u0644\u0649 \u0627\u0644\u0644\u0647 \u0639\u0644\u064a\u0647 \u0648\u0633\u0644\u0645"
    )

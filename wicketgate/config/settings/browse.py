"""The section ``browse``: how tools are found."""

from typing import Self

from pydantic import field_validator, model_validator

from wicketgate.catalog.words import terms
from wicketgate.config.settings.base import Section, ToolPattern, refuse_repeats
from wicketgate.gateway.learning import LearnScope

_MAX_ENTRIES = 1_000
_MAX_SAID = 50
_MAX_SAID_CHARS = 200


class SaidWordsSettings(Section):
    """The words *say* find each tool that *match* fits, as if they stood in its definition."""

    match: ToolPattern
    """The tools: a pattern as in access rules, or an id."""
    say: tuple[str, ...]
    """Words that people use for them, at most 50 texts of at most 200 characters."""

    @field_validator("say")
    @classmethod
    def _searchable(cls, say: tuple[str, ...]) -> tuple[str, ...]:
        if not say:
            raise ValueError("is empty: list the words that find the tools")
        if len(say) > _MAX_SAID:
            raise ValueError(f"has more than {_MAX_SAID} texts")
        for number, text in enumerate(say):
            if len(text) > _MAX_SAID_CHARS:
                raise ValueError(f"the text {number} has more than {_MAX_SAID_CHARS} characters")
            if not terms(text):
                raise ValueError(f"the text {number} contains no word")
        return say


class BrowseSettings(Section):
    learn: LearnScope = "actor"
    """Whose executions teach which words lead to which tool."""
    words: tuple[SaidWordsSettings, ...] = ()
    """Words of the operator, which find tools whose definitions do not have them."""
    words_file: str | None = None
    """Made by ``wicketgate words``: words of a model for the tools that no entry of *words* fits."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if len(self.words) > _MAX_ENTRIES:
            raise ValueError(f"words has more than {_MAX_ENTRIES} entries")
        refuse_repeats("match", (entry.match for entry in self.words))
        return self

    def said(self) -> dict[str, tuple[str, ...]]:
        """Returns the words by pattern, in the order of the entries."""
        return {entry.match: entry.say for entry in self.words}

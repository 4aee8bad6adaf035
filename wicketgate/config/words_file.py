"""Reads and writes ``wicketgate.words``: what a model wrote of each definition, one tool a line, in JSON that people
can review (BROWSE-100)."""

import json
from pathlib import Path

from wicketgate.catalog.written_words import ToolSaid, Written, kept_words
from wicketgate.config.lock_file import replace_file
from wicketgate.config.settings import BrowseSettings
from wicketgate.errors import ConfigError


def words_in_force(settings: BrowseSettings) -> dict[str, str]:
    """Returns the words by digest. Raises ConfigError if the file is missing or malformed."""
    path = Path(settings.words_file or "")
    if settings.words_file and not path.exists():
        raise ConfigError(f"Invalid configuration: browse.words_file: there is no {path}; run: wicketgate words")
    return {digest: said.words for digest, said in read_words(path).items()} if settings.words_file else {}


def read_words(path: Path) -> dict[str, ToolSaid]:
    """Returns no words if there is no file. Raises ConfigError. Bounds the words of a line as those of an answer, so
    that an edited file can do no more than a model."""
    found: dict[str, ToolSaid] = {}
    line = ""
    try:
        for line in path.read_text("utf-8").splitlines() if path.exists() else ():
            tool, digest, words = (str(json.loads(line)[key]) for key in ("tool", "sha256", "words"))
            found[digest] = ToolSaid(tool, kept_words(words))
    except (OSError, LookupError, TypeError, ValueError, RecursionError):
        what = f": it was not written by wicketgate words: {line[:80]!r}" if line else ""
        raise ConfigError(f"Cannot read the file of words {path}{what}") from None
    return found


def write_words(path: Path, written: Written) -> None:
    """Replaces the file by a complete new one, by tool, or leaves it unchanged. Raises ConfigError."""
    entries = sorted(written.items(), key=lambda pair: (pair[1].tool, pair[0]))
    lines = (json.dumps({"tool": said.tool, "sha256": digest, "words": said.words}) for digest, said in entries)
    replace_file(path, "".join(f"{line}\n" for line in lines), "file of words")

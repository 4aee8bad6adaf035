"""Reads and writes ``wicketgate.words``: what a model wrote of each definition, one tool a line, in JSON that people
can review (BROWSE-100)."""

import json
import re
from pathlib import Path

from wicketgate.catalog.written_words import ToolSaid, Written, kept_words
from wicketgate.config.lock_file import replace_file
from wicketgate.config.settings import BrowseSettings
from wicketgate.errors import ConfigError

_MAX_BYTES = 32_000_000
_DIGEST = re.compile(r"[0-9a-f]{64}")


def words_in_force(settings: BrowseSettings) -> dict[str, str]:
    """Returns the words by digest. Raises ConfigError if the file is missing or malformed."""
    if settings.words_file is None:
        return {}
    path = Path(settings.words_file)
    if not path.exists():
        raise ConfigError(
            f"Invalid configuration: browse.words_file: there is no {path}. "
            f"Make it with: wicketgate words --config FILE --words {path}"
        )
    return {digest: entry.words for digest, entry in read_words(path).items() if entry.words}


def read_words(path: Path) -> dict[str, ToolSaid]:
    """Returns no words if there is no file. Raises ConfigError. Bounds the words of a line as those of an answer, so
    that an edited file can do no more than a model."""
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
        lines = content.decode().splitlines() if len(content) <= _MAX_BYTES else [""]
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"Cannot read the file of words {path}: {type(error).__name__}") from None
    found: dict[str, ToolSaid] = {}
    for number, line in enumerate(lines, 1):
        try:
            match json.loads(line):
                case {"tool": str(tool), "sha256": str(digest), "words": str(words)} if _DIGEST.fullmatch(digest):
                    found[digest] = ToolSaid(tool, kept_words(words))
                    continue
        except (ValueError, RecursionError):
            pass
        raise ConfigError(f"The file of words {path}: line {number} is not one that wicketgate words has written")
    return found


def write_words(path: Path, written: Written) -> None:
    """Replaces the file by a complete new one, by tool, or leaves it unchanged. Raises ConfigError."""
    entries = sorted(written.items(), key=lambda pair: (pair[1].tool, pair[0]))
    lines = (json.dumps({"tool": said.tool, "sha256": digest, "words": said.words}) for digest, said in entries)
    replace_file(path, "".join(f"{line}\n" for line in lines), "file of words")

"""Session files on disk (S1 "load_mcp_session_jsonl")."""

from pathlib import Path

from wicketgate.context.items import ContextItem
from wicketgate.context.session_jsonl import parse_session_jsonl
from wicketgate.errors import SessionFileError


def load_mcp_session_jsonl(path: str | Path) -> list[ContextItem]:
    """Read a session file. Raises SessionFileError: it cannot be read, is not UTF-8, or a line is at fault."""
    try:
        with Path(path).open(encoding="utf-8-sig") as lines:
            return parse_session_jsonl(lines)
    except OSError as error:
        raise SessionFileError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SessionFileError("is not UTF-8 text") from None

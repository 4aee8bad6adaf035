"""What must not stand in any text for a client: paths, stack traces, credentials (S3 "Error message safety")."""

import re

_SIGNS = {
    "a stack trace": re.compile(
        r"Traceback \(most recent|File \"[^\"]+\", line \d|\n\s+at \S+ ?\("
        r"|\bgoroutine \d+ \[|\.(?:py|js|ts|go|rs|java):\d+"
    ),
    "a path": re.compile(
        r"(?<![\w/])/(?:home|root|usr|srv|var|etc|opt|tmp|app|mnt|data|Users|workspace)/[\w.-]"
        r"|\b[A-Za-z]:\\[\w.-]|site-packages|node_modules"
    ),
    "a credential": re.compile(
        r"\b(?:sk|pk|rk|ghp|xox[bp]|wg)[-_][A-Za-z0-9_-]{6,}|\bBearer [A-Za-z0-9._~+/-]{8,}|\beyJ[\w-]{10,}\."
    ),
    "an exception": re.compile(r"\b[A-Z]\w*(?:Error|Exception)\b: |\bECONN[A-Z]+\b|\berrno\b", re.ASCII),
}


def leaks(text: str) -> list[str]:
    """What of that kind *text* seems to hold."""
    return [what for what, sign in _SIGNS.items() if sign.search(text)]

"""Credentials, by their shape: keys of well-known services, tokens, private keys, passwords in URLs (gatekit G95).

The shapes are those that the services publish for scanners. Words that merely look random are left alone.
"""

from wicketgate.plugins.findings import Scanner
from wicketgate.plugins.text_filter import TextFilter

_ASSIGNED = r"\b(?i:api[_-]?key|secret(?:[_-]?key)?|(?:access|auth)[_-]?token|passwd|password)"

_PATTERNS = (
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z2-7]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{30,}\b",
    r"\bgithub_pat_[A-Za-z0-9_]{22,}",
    r"\bgl(?:pat|ptt|rt|dt|soat)-[A-Za-z0-9_-]{20,}",
    r"\bsk-(?:proj-|ant-|svcacct-|or-v1-)?[A-Za-z0-9_-]{20,}",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\bhooks\.slack\.com/services/[A-Za-z0-9/]{20,100}",
    r"\b[rs]k_(?:live|test)_[A-Za-z0-9]{16,}",
    r"\bAIza[A-Za-z0-9_-]{35}",
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    r"\bnpm_[A-Za-z0-9]{36}\b",
    r"\bpypi-[A-Za-z0-9_-]{50,}",
    r"\bhf_[A-Za-z0-9]{30,}\b",
    r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{16,64}",
    r"\bwg_[a-z0-9-]{1,32}_[A-Za-z0-9_-]{20,}",
    r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----(?:[^-]*-----END [A-Z ]*PRIVATE KEY-----|[A-Za-z0-9+/=\s\\]*)",
    r"://[^\s/:@\"']+:[^\s/@\"']+@",
    r"\b(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/=]{20,}",
    r"\b(?i:bearer|basic) [A-Za-z0-9._~+/-]{16,}=*",
    _ASSIGNED + r"[\"']?\s?[:=]\s?[\"']?[A-Za-z0-9._~+/!@#$%^&*-]{8,}",
)


class SecretsFilter(TextFilter):
    title = "Secrets Filter"

    def make_scanner(self) -> Scanner:
        return Scanner(_PATTERNS, lambda match: "secret", lambda kind: "[SECRET REDACTED by Wicketgate]")

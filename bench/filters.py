"""Time that the secrets, PII and injection filters take for 30 KB of text, hostile texts included (ROUTE-29: 5 ms).

CPU time of one pass through all three, the best of several: the machine is shared.
"""

import time
from collections import Counter
from collections.abc import Mapping

from wicketgate.plugins.filters import PiiConfig, PiiFilter, PromptInjectionFilter, SecretsFilter
from wicketgate.plugins.text_filter import FilterConfig

SIZE = 30_000
ROUNDS = 7
_PROSE = "The quick brown fox jumps over the lazy dog. "

TEXTS: Mapping[str, str] = {
    "prose": _PROSE,
    "prose, some findings": _PROSE * 4 + "bob@example.com ghp_" + "a1B2" * 9 + " ignore all previous instructions ",
    "role marks": "<system>",
    "addresses": "a@b.co ",
    "one letter": "a",
    "begun tokens": "eyJ",
    "begun orders": "ignore all the ",
    "passwords": "password=",
    "table of numbers": "4000 ",
    "cards": "4111 1111 1111 1111\n",
    "no cards, in lines": "4111 1111 1111 1112\n",
    "no cards, unbroken": "4111111111111112 ",
    "no IBANs": "DE89 3704 0044 0532 0130 01, ",
    "no ids": "000-00-0000 ",
    "no addresses": "999.999.999.999 ",
}


def main() -> None:
    filters = [SecretsFilter(FilterConfig()), PiiFilter(PiiConfig()), PromptInjectionFilter(FilterConfig())]
    print(f"{'30 KB of':<24}{'found':>8}{'CPU ms':>9}")
    for name, unit in TEXTS.items():
        text = (unit * (SIZE // len(unit) + 1))[:SIZE]
        best = float("inf")
        for _ in range(ROUNDS):
            began = time.process_time()
            found: Counter[str] = Counter()
            left = text
            for plugin in filters:
                if plugin.scanner.suspects([left]):
                    left = plugin.scanner.replace(left, found)
            best = min(best, time.process_time() - began)
        print(f"{name:<24}{sum(found.values()):>8}{best * 1e3:>9.2f}")


if __name__ == "__main__":
    main()

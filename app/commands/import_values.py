"""The values of a client's entry with variables in place of the secrets in them (OPS-4)."""

import re

from app.commands.import_secrets import (
    glued,
    is_masked,
    is_masked_beside,
    is_short_secret,
    looks_secret,
    password_of,
    secrets_in,
)
from app.commands.import_variables import Variables, between_references, has_reference, references_in

_HEADER_FLAGS = frozenset({"--header", "-H"})
_ENV_FLAGS = frozenset({"-e", "--env"})
_SCHEME = re.compile(r"((?:bearer|basic|token|apikey)\s+)(\S+)", re.IGNORECASE)


class Values:
    """Writes the values of the server *name*. With *optional*, a variable that is not set is empty.

    What has no equivalent gets one of *notes*.
    """

    def __init__(self, name: str, variables: Variables, notes: list[str], *, optional: bool) -> None:
        self._name = name
        self._variables = variables
        self._notes = notes
        self._optional = optional

    def words(self, words: list[str]) -> list[str]:
        """The words of a command without secrets: those after ``--token``, in ``--token=``, ``-e TOKEN=``,
        ``--header "Name: ..."``, ``--user name:password``, ``-k secret`` and ``-psecret``, in JSON, and those with a
        well-known shape."""
        done: list[str] = []
        for before, word in zip(["", *words], words, strict=False):
            flag, equals, value = word.partition("=")
            short, secret = glued(word)
            if short:
                done.append(short + self._secret(secret, f"{self._name}_{short}", f"argument {short}"))
            elif before in _HEADER_FLAGS and ":" in word:
                header, _, content = word.partition(":")
                space = " " if content.startswith(" ") else ""
                done.append(f"{header}:{space}{self.header(header, content.strip())}")
            elif equals and before in _ENV_FLAGS:
                done.append(f"{flag}={self.value(flag, value, flag, f'argument {flag}')}")
            elif equals and flag.startswith("-"):
                done.append(f"{flag}={self._argument(flag, value)}")
            elif before.startswith("-") and "=" not in before and not glued(before)[0] and not word.startswith("-"):
                done.append(self._argument(before, word))
            else:
                done.append(self._argument("", word))
        return done

    def header(self, name: str, value: str) -> str:
        found = _SCHEME.fullmatch(value)
        scheme, rest = found.groups() if found else ("", value)
        return scheme + self.value("token" if scheme else name, rest, f"{self._name}_{name}", f"header {name}")

    def _argument(self, flag: str, value: str) -> str:
        """A long argument is more often a package or an id than a secret. Without a flag that names a secret, only a
        well-known shape counts."""
        wanted, description = f"{self._name}_{flag or 'argument'}", f"argument {flag}".strip()
        if password := password_of(flag, value):
            if has_reference(password):
                return self.translate(value)
            name = value.removesuffix(password)
            return name + self._secret(password, f"{self._name}_password", f"password in {description}")
        if is_short_secret(flag, value) and not has_reference(value):
            return self._secret(value, wanted, description)
        plain = not has_reference(value) and "://" not in value and not is_masked_beside(value)
        if plain and not (looks_secret(flag, "x") and looks_secret(flag, value)):
            return self._without_parts(value, description)
        return self.value(flag, value, wanted, description)

    def value(self, name: str, value: str, wanted: str, description: str) -> str:
        """*value* with a variable in place of the secret in it."""
        if has_reference(value) or "://" in value:
            return self.url(self._beside_references(name, value, wanted, description), description)
        if looks_secret(name, value):
            return self._secret(value, wanted, description)
        return self._without_parts(value, description)

    def url(self, url: str, description: str) -> str:
        return self.translate(self._without_parts(url, description))

    def _without_parts(self, text: str, description: str) -> str:
        """*text* with variables for the secrets that are parts of it. One within a reference, as its default, is left
        to ``translate``."""
        references = iter(references_in(text))
        opens, closes = 0, 0
        done, at = "", 0
        for start, end, name in secrets_in(text):
            while closes <= start:
                opens, closes = next(references, (len(text), len(text) + 1))
            if end <= opens:
                secret = self._secret(text[start:end], f"{self._name}_{name}", f"{name} in {description}")
                done, at = done + text[at:start] + secret, end
        return done + text[at:]

    def _beside_references(self, name: str, value: str, wanted: str, description: str) -> str:
        """*value* with variables for the secrets between its references."""
        done = ""
        for part, is_text in between_references(value):
            words = re.split(r"(\s+)", part) if is_text and not is_masked(part.strip()) else [part]
            for word in words:
                core = word.strip()
                secret = is_masked(core) or (looks_secret(name, "x") and looks_secret("", core))
                if is_text and core and "://" not in core and secret:
                    word = word.replace(core, self._secret(core, wanted, f"part of {description}"), 1)
                done += word
        return done

    def _secret(self, value: str, wanted: str, description: str) -> str:
        about = f"{description} of {self._name}"
        return self._variables.secret(value, wanted, self._name, about, optional=self._optional)

    def translate(self, text: str) -> str:
        return self._variables.translate(text, self._notes, optional=self._optional)

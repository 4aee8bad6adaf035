"""The ways in which a login, or a token, does not come about, each with a fixed text for callers."""

from typing import ClassVar


class LoginFailure(Exception):
    """*why* is a fixed phrase for anybody. *detail* is for the operator: it may name hosts, and words of an issuer that
    were checked to be plain."""

    why: ClassVar[str] = "the login failed"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


class IssuerAway(LoginFailure):
    """The issuer, or the server that names it, cannot be asked now. What is kept of a login stays good."""

    why = "its issuer cannot be reached"


class GrantInvalid(LoginFailure):
    """``invalid_grant``: the code or the refresh token is not good any more. Only a new login helps."""

    why = "the login has ended"


class ClientInvalid(LoginFailure):
    """``invalid_client``: the issuer does not know this client, or not any more. A new registration may help."""

    why = "its issuer does not know this gate"


class NeedsLogin(LoginFailure):
    """There is no login, or it has ended, and only a person can make another one."""

    why = "it needs a login by its operator"


class Declined(LoginFailure):
    """``access_denied``: the person, or the issuer, said no."""

    why = "the login was declined"


class NotOffered(LoginFailure):
    """The server, or its issuer, offers no login that this client can use."""

    why = "it offers no login that can be used"


class Distrusted(LoginFailure):
    """A document or an answer is not what it has to be: another issuer, no PKCE, a wrong state. Never tried again."""

    why = "its login cannot be trusted"


class IssuerUnnamed(Distrusted):
    """An issuer that a tool server names, and whose answers could be another's, without the word of the operator."""

    why = "its operator has to name its issuer first (oauth.issuer)"


class Refused(LoginFailure):
    """The issuer refused with *code*, an error of OAuth that is none of the above."""

    why = "its issuer refused the login"

    def __init__(self, detail: str, code: str) -> None:
        super().__init__(detail)
        self.code = code

"""The section ``access`` of the configuration: rules as people write them, checked and compiled when they are read."""

from collections.abc import Iterable
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from wicketgate.access.identity import parse_permissions
from wicketgate.access.policy import AccessPolicy
from wicketgate.access.rules import AccessRule, Condition, split_pattern


class AccessRuleSettings(BaseModel):
    """What the fields mean: ``AccessRule``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    match: str
    require: tuple[str, ...] = ()
    require_any: tuple[str, ...] = ()
    resource: str = ""
    action: str = ""
    visibility: Literal["external", "internal"] = "external"
    when: str | None = None
    approval: Literal["never", "always"] = "never"
    effect: Literal["allow", "deny"] = "allow"

    @field_validator("match")
    @classmethod
    def _pattern(cls, match: str) -> str:
        split_pattern(match)
        return match

    @field_validator("require", "require_any")
    @classmethod
    def _permissions(cls, permissions: tuple[str, ...]) -> tuple[str, ...]:
        for permission in permissions:
            _check_permission(permission)
        return permissions

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if bool(self.resource) != bool(self.action):
            raise ValueError("resource and action belong together: the permission <resource>:<action> is required")
        if self.resource:
            _check_permission(f"{self.resource}:{self.action}")
        asks = bool(self.require or self.require_any or self.resource or self.approval == "always")
        if asks and (self.effect == "deny" or self.visibility == "internal"):
            raise ValueError("a rule that denies or hides a tool from everybody cannot ask for anything else")
        condition = self.condition()
        if self.visibility == "internal" and condition is not None and condition.needs_args:
            raise ValueError("visibility cannot depend on args: a tool is there or not. Use effect: deny")
        return self

    @field_validator("when")
    @classmethod
    def _compiles(cls, when: str | None) -> str | None:
        if when is not None:
            Condition(when)
        return when

    def condition(self) -> Condition | None:
        return None if self.when is None else Condition(self.when)

    def rule(self) -> AccessRule:
        return AccessRule(
            match=self.match,
            require=self.require,
            require_any=self.require_any,
            resource=self.resource,
            action=self.action,
            visibility=self.visibility,
            when=self.condition(),
            approval=self.approval,
            effect=self.effect,
        )


def access_policy(rules: Iterable[AccessRuleSettings]) -> AccessPolicy:
    """What the runtime holds, and what is assigned to it when the rules change."""
    return AccessPolicy([rule.rule() for rule in rules])


def _check_permission(permission: str) -> None:
    if "*" in permission or parse_permissions(permission) != (permission,):
        raise ValueError(f"not one permission: {permission!r}; '*' stands only in what is granted")

"""Who may see and call which tool; what a caller may not use does not exist for it (DESIGN §3)."""

from app.auth.identity import Identity


def may_use(identity: Identity, namespace: str, name: str) -> bool:
    """Whether *identity* may browse, hydrate and execute ``namespace:name``: it holds ``tools:<namespace>:<name>``."""
    return identity.allows(f"tools:{namespace}:{name}")


def may_use_every_tool(identity: Identity) -> bool:
    """A shortcut for the common caller: nothing has to be filtered."""
    return "*" in identity.permissions or "tools:*" in identity.permissions

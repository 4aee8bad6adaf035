"""What a face shows to each audience, worked out once for each catalog."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from wicketgate.catalog.catalog import Catalog
from wicketgate.gateway.runtime import ProxyRuntime
from wicketgate.ports import CallContext

T = TypeVar("T")

Visible = Callable[[str], bool]

_MAX_AUDIENCES = 64


class Views(Generic[T]):
    """*make* gets the catalog and who of its tools is visible, None for all of them."""

    def __init__(self, runtime: ProxyRuntime, make: Callable[[Catalog, Visible | None], T]) -> None:
        self._runtime = runtime
        self._make = make
        self._catalog: Catalog | None = None
        self._made: OrderedDict[Visible | None, T] = OrderedDict()

    def of(self, context: CallContext) -> T:
        """The same object as long as neither the catalog nor what the caller may see is another."""
        catalog = self._runtime.catalog()
        if catalog is not self._catalog:
            self._catalog = catalog
            self._made.clear()
        visible = self._runtime.visible(context)
        if visible not in self._made:
            self._made[visible] = self._make(catalog, visible)
            if len(self._made) > _MAX_AUDIENCES:
                self._made.popitem(last=False)
        return self._made[visible]

"""The tools about suppliers and about what we buy from them."""

from dataclasses import dataclass, replace
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from examples.shop.records import Product, Purchase, PurchaseStatus, Supplier, Warehouse
from examples.shop.stock import TODAY, Shop
from examples.shop.tooling import (
    Country,
    Email,
    Limit,
    ProductId,
    PurchaseId,
    Quantity,
    SupplierId,
    found,
    next_id,
    page,
    require,
    tools,
)


@dataclass(frozen=True)
class SupplierList:
    total: int
    suppliers: tuple[Supplier, ...]


@dataclass(frozen=True)
class SupplierProducts:
    total: int
    products: tuple[Product, ...]


@dataclass(frozen=True)
class PurchasePage:
    total: int
    purchases: tuple[Purchase, ...]


class SupplierTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_suppliers, self.get_supplier, self.list_supplier_products),
            *tools("changes", self.create_supplier, self.update_supplier_lead_time),
        ]

    def list_suppliers(self, country: Country | None = None) -> SupplierList:
        """List the suppliers, of all countries or of one."""
        rows = tuple(one for one in self._shop.suppliers.values() if country in (None, one.country))
        return SupplierList(len(rows), rows)

    def get_supplier(self, supplier_id: SupplierId) -> Supplier:
        """Get one supplier: name, country, e-mail, lead time."""
        return found(self._shop.suppliers, supplier_id, "supplier")

    def list_supplier_products(self, supplier_id: SupplierId) -> SupplierProducts:
        """List the products that one supplier delivers."""
        found(self._shop.suppliers, supplier_id, "supplier")
        rows = tuple(product for product in self._shop.products.values() if product.supplier_id == supplier_id)
        return SupplierProducts(len(rows), rows)

    def create_supplier(
        self,
        name: Annotated[str, Field(description="Name of the company.", min_length=1, max_length=80)],
        country: Country,
        email: Email,
        lead_time_days: Annotated[int, Field(description="Days from order to delivery.", ge=1, le=365)],
    ) -> Supplier:
        """Register a supplier."""
        supplier_id = next_id(self._shop.suppliers, "sup")
        return self._put(Supplier(supplier_id, name, country, email, lead_time_days))

    def update_supplier_lead_time(
        self,
        supplier_id: SupplierId,
        lead_time_days: Annotated[int, Field(description="Days from order to delivery.", ge=1, le=365)],
    ) -> Supplier:
        """Change how many days a supplier takes to deliver."""
        return self._put(replace(found(self._shop.suppliers, supplier_id, "supplier"), lead_time_days=lead_time_days))

    def _put(self, supplier: Supplier) -> Supplier:
        self._shop.suppliers[supplier.id] = supplier
        return supplier


class PurchaseTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_purchases, self.get_purchase),
            *tools("changes", self.create_purchase, self.mark_purchase_received),
            *tools("destroys", self.cancel_purchase),
        ]

    def list_purchases(self, status: PurchaseStatus | None = None, limit: Limit = 20) -> PurchasePage:
        """List our purchases from suppliers, newest first."""
        rows = [one for one in reversed(self._shop.purchases.values()) if status in (None, one.status)]
        return PurchasePage(len(rows), page(rows, limit, 0))

    def get_purchase(self, purchase_id: PurchaseId) -> Purchase:
        """Get one purchase from a supplier."""
        return found(self._shop.purchases, purchase_id, "purchase")

    def create_purchase(self, product_id: ProductId, quantity: Quantity) -> Purchase:
        """Buy pieces of a product from its supplier."""
        product = found(self._shop.products, product_id, "product")
        purchase_id = next_id(self._shop.purchases, "pur")
        return self._put(Purchase(purchase_id, product.supplier_id, product_id, quantity, "ordered", TODAY.isoformat()))

    def mark_purchase_received(self, purchase_id: PurchaseId, warehouse: Warehouse) -> Purchase:
        """Take a purchase in; its pieces go into a warehouse."""
        purchase = self._ordered(purchase_id)
        self._shop.stock[purchase.product_id, warehouse] += purchase.quantity
        return self._put(replace(purchase, status="received"))

    def cancel_purchase(self, purchase_id: PurchaseId) -> Purchase:
        """Cancel a purchase that has not arrived."""
        return self._put(replace(self._ordered(purchase_id), status="cancelled"))

    def _ordered(self, purchase_id: str) -> Purchase:
        purchase = found(self._shop.purchases, purchase_id, "purchase")
        require(purchase.status == "ordered", f"{purchase_id} is {purchase.status}.")
        return purchase

    def _put(self, purchase: Purchase) -> Purchase:
        self._shop.purchases[purchase.id] = purchase
        return purchase

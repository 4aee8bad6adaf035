"""The tools about products and about the pieces of them in each warehouse."""

from dataclasses import dataclass, replace
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from examples.shop.records import Category, Product, Warehouse
from examples.shop.stock import WAREHOUSES, Shop
from examples.shop.tooling import (
    Cents,
    Limit,
    Offset,
    ProductId,
    Quantity,
    SupplierId,
    Words,
    found,
    next_id,
    page,
    require,
    tools,
)


@dataclass(frozen=True)
class ProductPage:
    total: int
    products: tuple[Product, ...]


@dataclass(frozen=True)
class Comparison:
    """*cheaper* is an id, or empty when both cost the same."""

    cheaper: str
    difference_cents: int
    first: Product
    second: Product


@dataclass(frozen=True)
class StockLevel:
    product_id: str
    total: int
    by_warehouse: dict[str, int]


@dataclass(frozen=True)
class StockList:
    total: int
    levels: tuple[StockLevel, ...]


class ProductTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_products, self.get_product, self.search_products, self.compare_products),
            *tools("reads", self.export_product_catalog),
            *tools("changes", self.create_product, self.update_product_price),
            *tools("destroys", self.archive_product),
        ]

    def list_products(self, category: Category | None = None, limit: Limit = 20, offset: Offset = 0) -> ProductPage:
        """List products by id, of every category or of one."""
        rows = [product for product in self._shop.products.values() if category in (None, product.category)]
        return ProductPage(len(rows), page(rows, limit, offset))

    def get_product(self, product_id: ProductId) -> Product:
        """Get one product: name, price, category, description."""
        return found(self._shop.products, product_id, "product")

    def search_products(self, words: Words) -> ProductPage:
        """Search products by a part of their name or description."""
        needle = words.casefold()
        rows = [p for p in self._shop.products.values() if needle in f"{p.name}\n{p.description}".casefold()]
        return ProductPage(len(rows), page(rows, 20, 0))

    def compare_products(self, first_id: ProductId, second_id: ProductId) -> Comparison:
        """Compare two products and say which is cheaper."""
        first = found(self._shop.products, first_id, "product")
        second = found(self._shop.products, second_id, "product")
        difference = first.price_cents - second.price_cents
        cheaper = "" if difference == 0 else second_id if difference > 0 else first_id
        return Comparison(cheaper, abs(difference), first, second)

    def export_product_catalog(self) -> ProductPage:
        """Export the full product catalog as JSON. The result is large."""
        rows = list(self._shop.products.values())
        return ProductPage(len(rows), tuple(rows))

    def create_product(
        self,
        name: Annotated[str, Field(description="Name.", min_length=1, max_length=80)],
        category: Category,
        price_cents: Cents,
        supplier_id: SupplierId,
        description: Annotated[str, Field(description="What it is.", max_length=1_000)] = "",
    ) -> Product:
        """Add a product to the catalog, with no pieces in stock."""
        found(self._shop.suppliers, supplier_id, "supplier")
        product_id = next_id(self._shop.products, "prod")
        self._shop.stock.update({(product_id, warehouse): 0 for warehouse in WAREHOUSES})
        return self._put(Product(product_id, name, category, price_cents, supplier_id, description))

    def update_product_price(self, product_id: ProductId, price_cents: Cents) -> Product:
        """Change the price of a product, for orders from now on."""
        return self._put(replace(found(self._shop.products, product_id, "product"), price_cents=price_cents))

    def archive_product(self, product_id: ProductId) -> Product:
        """Take a product out of the catalog; it cannot be ordered any more."""
        return self._put(replace(found(self._shop.products, product_id, "product"), archived=True))

    def _put(self, product: Product) -> Product:
        self._shop.products[product.id] = product
        return product


class InventoryTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.get_inventory, self.list_inventory, self.check_inventory),
            *tools("changes", self.add_inventory, self.move_inventory),
            *tools("destroys", self.remove_inventory),
        ]

    def get_inventory(self, product_id: ProductId) -> StockLevel:
        """Get how many pieces of a product are in stock, by warehouse."""
        found(self._shop.products, product_id, "product")
        by_warehouse: dict[str, int] = {name: self._shop.stock[product_id, name] for name in WAREHOUSES}
        return StockLevel(product_id, sum(by_warehouse.values()), by_warehouse)

    def list_inventory(self, warehouse: Warehouse | None = None, limit: Limit = 50, offset: Offset = 0) -> StockList:
        """List the stock of all products, in every warehouse or in one."""
        levels = [self.get_inventory(product_id) for product_id in self._shop.products]
        if warehouse is not None:
            levels = [
                StockLevel(one.product_id, one.by_warehouse[warehouse], {warehouse: one.by_warehouse[warehouse]})
                for one in levels
            ]
        return StockList(len(levels), page(levels, limit, offset))

    def check_inventory(
        self, minimum: Annotated[int, Field(description="The fewest pieces that are enough.", ge=1, le=1_000)] = 100
    ) -> StockList:
        """Check which products run low and should be bought again."""
        levels = (self.get_inventory(key) for key, product in self._shop.products.items() if not product.archived)
        low = sorted((one for one in levels if one.total < minimum), key=lambda one: (one.total, one.product_id))
        return StockList(len(low), tuple(low))

    def add_inventory(self, product_id: ProductId, warehouse: Warehouse, quantity: Quantity) -> StockLevel:
        """Put pieces of a product into a warehouse."""
        found(self._shop.products, product_id, "product")
        self._shop.stock[product_id, warehouse] += quantity
        return self.get_inventory(product_id)

    def move_inventory(
        self, product_id: ProductId, source: Warehouse, target: Warehouse, quantity: Quantity
    ) -> StockLevel:
        """Move pieces of a product from one warehouse to another."""
        require(source != target, "source and target are the same warehouse.")
        self.remove_inventory(product_id, source, quantity)
        return self.add_inventory(product_id, target, quantity)

    def remove_inventory(self, product_id: ProductId, warehouse: Warehouse, quantity: Quantity) -> StockLevel:
        """Take broken or lost pieces of a product out of a warehouse."""
        found(self._shop.products, product_id, "product")
        left = self._shop.stock[product_id, warehouse]
        require(quantity <= left, f"Only {left} pieces of {product_id} are in the {warehouse} warehouse.")
        self._shop.stock[product_id, warehouse] = left - quantity
        return self.get_inventory(product_id)

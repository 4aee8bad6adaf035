"""The tools about orders: what may be done to one in which state."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from examples.shop.records import Order, OrderItem, OrderStatus, Warehouse
from examples.shop.stock import TODAY, Shop
from examples.shop.tooling import (
    CustomerId,
    Day,
    DiscountCode,
    Limit,
    Offset,
    OrderId,
    ProductId,
    Quantity,
    found,
    next_id,
    page,
    require,
    tools,
)

_OPEN: tuple[OrderStatus, ...] = ("placed", "paid", "packed")
_HOME: Warehouse = "north"


@dataclass(frozen=True)
class OrderRow:
    id: str
    customer_id: str
    placed_on: str
    status: OrderStatus
    total_cents: int


@dataclass(frozen=True)
class OrderPage:
    """*total* counts all that fit the question; *orders* are the newest of them."""

    total: int
    orders: tuple[OrderRow, ...]


@dataclass(frozen=True)
class OrderCounts:
    total: int
    by_status: dict[str, int]


class OrderTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_orders, self.list_customer_orders, self.get_order, self.count_orders),
            *tools("reads", self.export_orders),
            *tools("changes", self.create_order, self.add_order_note, self.update_order_discount),
            *tools("destroys", self.cancel_order),
        ]

    def list_orders(
        self, status: OrderStatus | None = None, since: Day | None = None, limit: Limit = 20, offset: Offset = 0
    ) -> OrderPage:
        """List the last orders, newest first, of every customer or in one status."""
        return _page(
            (
                order
                for order in self._shop.orders.values()
                if status in (None, order.status) and (since is None or order.placed_on >= since)
            ),
            limit,
            offset,
        )

    def list_customer_orders(
        self, customer_id: CustomerId, status: OrderStatus | None = None, limit: Limit = 20
    ) -> OrderPage:
        """List the orders of one customer, newest first."""
        found(self._shop.customers, customer_id, "customer")
        mine = (order for order in self._shop.orders.values() if order.customer_id == customer_id)
        return _page((order for order in mine if status in (None, order.status)), limit, 0)

    def get_order(self, order_id: OrderId) -> Order:
        """Get one order with its items, notes and total."""
        return found(self._shop.orders, order_id, "order")

    def count_orders(self, since: Day | None = None) -> OrderCounts:
        """Count orders by status, from a date on."""
        counts: dict[str, int] = {}
        for order in self._shop.orders.values():
            if since is None or order.placed_on >= since:
                counts[order.status] = counts.get(order.status, 0) + 1
        return OrderCounts(sum(counts.values()), counts)

    def export_orders(self, status: OrderStatus | None = None) -> str:
        """Export all orders as CSV, one line an order. The result is large."""
        lines = ["id,customer_id,customer,country,placed_on,status,items,total_cents,discount_code"]
        for order in self._shop.orders.values():
            if status in (None, order.status):
                customer = self._shop.customers.get(order.customer_id)
                name, country = (customer.name, customer.country) if customer else ("(deleted)", "")
                items = " ".join(f"{item.quantity}x{item.product_id}" for item in order.items)
                lines.append(
                    f"{order.id},{order.customer_id},{name},{country},{order.placed_on},{order.status},"
                    f"{items},{order.total_cents},{order.discount_code}"
                )
        return "\n".join(lines) + "\n"

    def create_order(self, customer_id: CustomerId, product_id: ProductId, quantity: Quantity = 1) -> Order:
        """Place an order of one product for a customer; the pieces leave the north warehouse."""
        found(self._shop.customers, customer_id, "customer")
        product = found(self._shop.products, product_id, "product")
        require(not product.archived, f"{product_id} is archived and cannot be ordered.")
        left = self._shop.stock[product_id, _HOME]
        require(quantity <= left, f"Only {left} pieces of {product_id} are in the {_HOME} warehouse.")
        self._shop.stock[product_id, _HOME] = left - quantity
        items = (OrderItem(product_id, quantity, product.price_cents),)
        order_id = next_id(self._shop.orders, "ord")
        total = quantity * product.price_cents
        order = Order(order_id, customer_id, TODAY.isoformat(), "placed", items, total)
        self._shop.orders[order_id] = order
        return order

    def add_order_note(
        self, order_id: OrderId, note: Annotated[str, Field(description="The note.", min_length=1, max_length=500)]
    ) -> Order:
        """Add a note to an order, for the people who pack it."""
        order = found(self._shop.orders, order_id, "order")
        return self._put(replace(order, notes=(*order.notes, note)))

    def update_order_discount(self, order_id: OrderId, code: DiscountCode) -> Order:
        """Put a discount on an order that has none and is not sent yet; lowers its total."""
        order = found(self._shop.orders, order_id, "order")
        discount = found(self._shop.discounts, code, "discount")
        require(order.status in _OPEN, f"{order_id} is {order.status}.")
        require(not order.discount_code, f"{order_id} already has the discount {order.discount_code}.")
        require(discount.active and discount.expires_on >= TODAY.isoformat(), f"The discount {code} is not valid now.")
        total = order.total_cents * (100 - discount.percent) // 100
        return self._put(replace(order, discount_code=code, total_cents=total))

    def cancel_order(self, order_id: OrderId) -> Order:
        """Cancel an order that is not sent yet; its pieces go back to the north warehouse."""
        order = found(self._shop.orders, order_id, "order")
        require(order.status in _OPEN, f"{order_id} is {order.status} and cannot be cancelled any more.")
        for item in order.items:
            self._shop.stock[item.product_id, _HOME] += item.quantity
        return self._put(replace(order, status="cancelled"))

    def _put(self, order: Order) -> Order:
        self._shop.orders[order.id] = order
        return order


def _page(orders: Iterable[Order], limit: int, offset: int) -> OrderPage:
    newest = sorted(orders, key=lambda order: (order.placed_on, order.id), reverse=True)
    rows = [OrderRow(o.id, o.customer_id, o.placed_on, o.status, o.total_cents) for o in newest]
    return OrderPage(len(rows), page(rows, limit, offset))

"""The tools that sum up: sales, stock, and how reliable the carriers are. Cancelled orders count nowhere."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from examples.shop.records import Order
from examples.shop.stock import TODAY, Shop
from examples.shop.tooling import tools

Top = Annotated[int, Field(description="How many to name.", ge=1, le=50)]


@dataclass(frozen=True)
class Figures:
    """Figures by name; money is in cents."""

    title: str
    figures: dict[str, int]


class ReportTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return tools(
            "reads",
            self.report_sales_by_month,
            self.report_sales_by_country,
            self.report_best_products,
            self.report_best_customers,
            self.report_stock_value,
            self.report_return_reasons,
            self.report_full_year,
        )

    def report_sales_by_month(self) -> Figures:
        """Report the revenue of each month, in cents."""
        sums: Counter[str] = Counter()
        for order in self._sold():
            sums[order.placed_on[:7]] += order.total_cents
        return Figures("revenue by month, cents", dict(sorted(sums.items())))

    def report_sales_by_country(self) -> Figures:
        """Report the revenue of each country, in cents."""
        sums: Counter[str] = Counter()
        for order in self._sold():
            customer = self._shop.customers.get(order.customer_id)
            sums[customer.country if customer else "deleted customers"] += order.total_cents
        return Figures("revenue by country, cents", dict(sorted(sums.items())))

    def report_best_products(self, top: Top = 10) -> Figures:
        """Report the best selling products, by pieces."""
        sums: Counter[str] = Counter()
        for order in self._sold():
            for item in order.items:
                sums[item.product_id] += item.quantity
        return Figures(f"best {top} products, pieces", _highest(sums, top))

    def report_best_customers(self, top: Top = 10) -> Figures:
        """Report the customers who bought most, in cents."""
        sums: Counter[str] = Counter()
        for order in self._sold():
            sums[order.customer_id] += order.total_cents
        return Figures(f"best {top} customers, cents", _highest(sums, top))

    def report_stock_value(self) -> Figures:
        """Report what the goods in each warehouse are worth, in cents."""
        sums: Counter[str] = Counter()
        for (product_id, warehouse), pieces in self._shop.stock.items():
            sums[warehouse] += pieces * self._shop.products[product_id].price_cents
        return Figures("stock value by warehouse, cents", dict(sums))

    def report_return_reasons(self) -> Figures:
        """Report why goods came back, by number of returns."""
        return Figures("returns by reason", dict(Counter(one.reason for one in self._shop.returns.values())))

    def report_full_year(self) -> str:
        """Report every sold item of the past year as text, day by day. The result is large."""
        lines = [f"Sales from {TODAY.replace(year=TODAY.year - 1)} to {TODAY}"]
        day = ""
        for order in sorted(self._sold(), key=lambda order: (order.placed_on, order.id)):
            if order.placed_on != day:
                day = order.placed_on
                lines += ["", day]
            for item in order.items:
                name = self._shop.products[item.product_id].name
                lines.append(
                    f"  {order.id}  {item.quantity} x {name} ({item.product_id})  {item.unit_price_cents} cents"
                )
        return "\n".join(lines) + "\n"

    def _sold(self) -> list[Order]:
        year = TODAY.replace(year=TODAY.year - 1).isoformat()
        return [one for one in self._shop.orders.values() if one.status != "cancelled" and one.placed_on >= year]


def _highest(sums: Mapping[str, int], top: int) -> dict[str, int]:
    return dict(sorted(sums.items(), key=lambda row: (-row[1], row[0]))[:top])

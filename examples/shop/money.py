"""The tools about invoices and discounts."""

from dataclasses import dataclass, replace
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from examples.shop.records import Discount, Invoice, InvoiceStatus
from examples.shop.stock import TODAY, Shop
from examples.shop.tooling import CustomerId, Day, DiscountCode, InvoiceId, Limit, found, page, require, tools


@dataclass(frozen=True)
class InvoicePage:
    """*amount_cents* is the sum over all that fit, not only those shown."""

    total: int
    amount_cents: int
    invoices: tuple[Invoice, ...]


@dataclass(frozen=True)
class DiscountList:
    discounts: tuple[Discount, ...]


@dataclass(frozen=True)
class Validity:
    code: str
    valid: bool
    reason: str


class InvoiceTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_invoices, self.list_customer_invoices, self.get_invoice, self.export_invoices),
            *tools("changes", self.mark_invoice_paid, self.send_invoice_reminder),
            *tools("destroys", self.cancel_invoice),
        ]

    def list_invoices(self, status: InvoiceStatus | None = None, limit: Limit = 20) -> InvoicePage:
        """List invoices, newest first, of all or in one status such as overdue."""
        return _page([one for one in self._shop.invoices.values() if status in (None, one.status)], limit)

    def list_customer_invoices(
        self, customer_id: CustomerId, status: InvoiceStatus | None = None, limit: Limit = 20
    ) -> InvoicePage:
        """List the invoices of one customer, newest first."""
        found(self._shop.customers, customer_id, "customer")
        mine = [one for one in self._shop.invoices.values() if one.customer_id == customer_id]
        return _page([one for one in mine if status in (None, one.status)], limit)

    def get_invoice(self, invoice_id: InvoiceId) -> Invoice:
        """Get one invoice: amount, due date, status, reminders."""
        return found(self._shop.invoices, invoice_id, "invoice")

    def export_invoices(self, status: InvoiceStatus | None = None) -> str:
        """Export invoices as CSV for the bookkeeper. The result is large."""
        lines = ["id,order_id,customer_id,issued_on,due_on,amount_cents,status,reminders"]
        lines += [
            f"{i.id},{i.order_id},{i.customer_id},{i.issued_on},{i.due_on},{i.amount_cents},{i.status},{i.reminders}"
            for i in self._shop.invoices.values()
            if status in (None, i.status)
        ]
        return "\n".join(lines) + "\n"

    def mark_invoice_paid(self, invoice_id: InvoiceId) -> Invoice:
        """Mark an open or overdue invoice as paid."""
        invoice = self._unpaid(invoice_id)
        return self._put(replace(invoice, status="paid"))

    def send_invoice_reminder(self, invoice_id: InvoiceId) -> Invoice:
        """Remind the customer of an unpaid invoice; three times at most."""
        invoice = self._unpaid(invoice_id)
        require(invoice.reminders < 3, f"{invoice_id} has had three reminders.")
        return self._put(replace(invoice, reminders=invoice.reminders + 1))

    def cancel_invoice(self, invoice_id: InvoiceId) -> Invoice:
        """Cancel an unpaid invoice."""
        return self._put(replace(self._unpaid(invoice_id), status="cancelled"))

    def _unpaid(self, invoice_id: str) -> Invoice:
        invoice = found(self._shop.invoices, invoice_id, "invoice")
        require(invoice.status in ("open", "overdue"), f"{invoice_id} is {invoice.status}.")
        return invoice

    def _put(self, invoice: Invoice) -> Invoice:
        self._shop.invoices[invoice.id] = invoice
        return invoice


class DiscountTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_discounts, self.check_discount),
            *tools("changes", self.create_discount),
            *tools("destroys", self.disable_discount),
        ]

    def list_discounts(self) -> DiscountList:
        """List all discount codes."""
        return DiscountList(tuple(self._shop.discounts.values()))

    def check_discount(self, code: DiscountCode) -> Validity:
        """Check whether a discount code is valid today."""
        discount = found(self._shop.discounts, code, "discount")
        if not discount.active:
            return Validity(code, False, "disabled")
        if discount.expires_on < TODAY.isoformat():
            return Validity(code, False, f"expired on {discount.expires_on}")
        return Validity(code, True, f"{discount.percent} percent until {discount.expires_on}")

    def create_discount(
        self,
        code: DiscountCode,
        percent: Annotated[int, Field(description="Percent off.", ge=1, le=50)],
        expires_on: Day,
    ) -> Discount:
        """Make a new discount code."""
        require(code not in self._shop.discounts, f"The discount {code} exists.")
        return self._put(Discount(code, percent, expires_on))

    def disable_discount(self, code: DiscountCode) -> Discount:
        """Disable a discount code for good."""
        return self._put(replace(found(self._shop.discounts, code, "discount"), active=False))

    def _put(self, discount: Discount) -> Discount:
        self._shop.discounts[discount.code] = discount
        return discount


def _page(invoices: list[Invoice], limit: int) -> InvoicePage:
    newest = sorted(invoices, key=lambda one: (one.issued_on, one.id), reverse=True)
    return InvoicePage(len(newest), sum(one.amount_cents for one in newest), page(newest, limit, 0))

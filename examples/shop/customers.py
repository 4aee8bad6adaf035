"""The tools about customers."""

from dataclasses import dataclass, replace
from typing import Annotated

from mcp.server.mcpserver.tools import Tool
from pydantic import Field

from examples.shop.records import Customer
from examples.shop.stock import TODAY, Shop
from examples.shop.tooling import Country, CustomerId, Email, Limit, Offset, Words, found, next_id, page, require, tools

Name = Annotated[str, Field(description="Full name.", min_length=1, max_length=80)]
City = Annotated[str, Field(description="City.", min_length=1, max_length=80)]


@dataclass(frozen=True)
class CustomerPage:
    total: int
    customers: tuple[Customer, ...]


@dataclass(frozen=True)
class Deleted:
    deleted: str


class CustomerTools:
    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def tools(self) -> list[Tool]:
        return [
            *tools("reads", self.list_customers, self.get_customer, self.search_customers, self.export_customers),
            *tools("changes", self.create_customer, self.update_customer_email, self.set_customer_newsletter),
            *tools("destroys", self.delete_customer),
        ]

    def list_customers(self, country: Country | None = None, limit: Limit = 20, offset: Offset = 0) -> CustomerPage:
        """List customers by id, of all countries or of one."""
        rows = [customer for customer in self._shop.customers.values() if country in (None, customer.country)]
        return CustomerPage(len(rows), page(rows, limit, offset))

    def get_customer(self, customer_id: CustomerId) -> Customer:
        """Get one customer: name, e-mail, city, country, newsletter."""
        return found(self._shop.customers, customer_id, "customer")

    def search_customers(self, words: Words) -> CustomerPage:
        """Search customers by a part of their name, e-mail or city."""
        needle = words.casefold()
        rows = [c for c in self._shop.customers.values() if needle in f"{c.name}\n{c.email}\n{c.city}".casefold()]
        return CustomerPage(len(rows), page(rows, 20, 0))

    def export_customers(self) -> str:
        """Export all customers as CSV."""
        lines = ["id,name,email,city,country,since,newsletter"]
        lines += [
            f"{c.id},{c.name},{c.email},{c.city},{c.country},{c.since},{str(c.newsletter).lower()}"
            for c in self._shop.customers.values()
        ]
        return "\n".join(lines) + "\n"

    def create_customer(self, name: Name, email: Email, city: City, country: Country) -> Customer:
        """Register a customer; the e-mail address must be new."""
        self._require_new(email)
        customer_id = next_id(self._shop.customers, "cust")
        return self._put(Customer(customer_id, name, email, city, country, TODAY.isoformat(), False))

    def update_customer_email(self, customer_id: CustomerId, email: Email) -> Customer:
        """Change the e-mail address of a customer."""
        customer = found(self._shop.customers, customer_id, "customer")
        self._require_new(email)
        return self._put(replace(customer, email=email))

    def set_customer_newsletter(
        self, customer_id: CustomerId, wanted: Annotated[bool, Field(description="Whether to send the newsletter.")]
    ) -> Customer:
        """Subscribe a customer to the newsletter, or unsubscribe."""
        return self._put(replace(found(self._shop.customers, customer_id, "customer"), newsletter=wanted))

    def delete_customer(self, customer_id: CustomerId) -> Deleted:
        """Delete a customer who has no open order; past orders stay."""
        found(self._shop.customers, customer_id, "customer")
        unfinished = [
            order.id
            for order in self._shop.orders.values()
            if order.customer_id == customer_id and order.status not in ("delivered", "cancelled")
        ]
        require(not unfinished, f"{customer_id} has open orders: {', '.join(unfinished[:5])}.")
        del self._shop.customers[customer_id]
        return Deleted(customer_id)

    def _require_new(self, email: str) -> None:
        taken = any(customer.email == email for customer in self._shop.customers.values())
        require(not taken, f"A customer with the address {email} exists.")

    def _put(self, customer: Customer) -> Customer:
        self._shop.customers[customer.id] = customer
        return customer

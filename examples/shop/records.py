"""Records that the shop keeps: one frozen record a noun, and the words that its fields may hold.

The records have no slots, like everything that the tools give back: the SDK reads a slot as a field's default value.
"""

from dataclasses import dataclass
from typing import Literal

OrderStatus = Literal["placed", "paid", "packed", "shipped", "delivered", "cancelled"]
ShipmentStatus = Literal["prepared", "in_transit", "delivered", "lost", "cancelled"]
ReturnStatus = Literal["requested", "approved", "closed"]
ReturnReason = Literal["damaged", "wrong_item", "too_late", "not_wanted"]
InvoiceStatus = Literal["open", "overdue", "paid", "cancelled"]
PurchaseStatus = Literal["ordered", "received", "cancelled"]
Category = Literal["kitchen", "garden", "office", "sport", "toys"]
Warehouse = Literal["north", "south", "harbour"]
Carrier = Literal["swift", "parcelworks", "bluebird"]


@dataclass(frozen=True)
class Customer:
    """*country* is ISO 3166 alpha-2; *since* is an ISO date."""

    id: str
    name: str
    email: str
    city: str
    country: str
    since: str
    newsletter: bool


@dataclass(frozen=True)
class Product:
    id: str
    name: str
    category: Category
    price_cents: int
    supplier_id: str
    description: str
    archived: bool = False


@dataclass(frozen=True)
class OrderItem:
    product_id: str
    quantity: int
    unit_price_cents: int


@dataclass(frozen=True)
class Order:
    """*total_cents* is after the discount."""

    id: str
    customer_id: str
    placed_on: str
    status: OrderStatus
    items: tuple[OrderItem, ...]
    total_cents: int
    discount_code: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shipment:
    id: str
    order_id: str
    carrier: Carrier
    tracking_code: str
    status: ShipmentStatus
    history: tuple[str, ...]


@dataclass(frozen=True)
class Return:
    id: str
    order_id: str
    product_id: str
    quantity: int
    reason: ReturnReason
    status: ReturnStatus
    opened_on: str


@dataclass(frozen=True)
class Invoice:
    id: str
    order_id: str
    customer_id: str
    issued_on: str
    due_on: str
    amount_cents: int
    status: InvoiceStatus
    reminders: int = 0


@dataclass(frozen=True)
class Supplier:
    id: str
    name: str
    country: str
    email: str
    lead_time_days: int


@dataclass(frozen=True)
class Purchase:
    """An order of the shop at a supplier."""

    id: str
    supplier_id: str
    product_id: str
    quantity: int
    status: PurchaseStatus
    ordered_on: str


@dataclass(frozen=True)
class Discount:
    code: str
    percent: int
    expires_on: str
    active: bool = True

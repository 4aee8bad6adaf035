"""The shop's state, and how it is made: by arithmetic alone, so that every start shows the same shop."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import get_args

from examples.shop.records import (
    Carrier,
    Category,
    Customer,
    Discount,
    Invoice,
    InvoiceStatus,
    Order,
    OrderItem,
    OrderStatus,
    Product,
    Purchase,
    PurchaseStatus,
    Return,
    ReturnReason,
    ReturnStatus,
    Shipment,
    ShipmentStatus,
    Supplier,
    Warehouse,
)

TODAY = date(2026, 6, 30)
CUSTOMERS, PRODUCTS, ORDERS, SUPPLIERS = 60, 80, 1_500, 10

CATEGORIES: tuple[Category, ...] = get_args(Category)
CARRIERS: tuple[Carrier, ...] = get_args(Carrier)
WAREHOUSES: tuple[Warehouse, ...] = get_args(Warehouse)
_REASONS: tuple[ReturnReason, ...] = get_args(ReturnReason)
_RETURN_STATUSES: tuple[ReturnStatus, ...] = get_args(ReturnStatus)

_FIRST = ("Ada", "Ben", "Chloe", "Dmitri", "Elena", "Femi", "Grace", "Hugo", "Ines", "Jonas", "Kemi", "Liam")
_LAST = ("Marsh", "Okafor", "Petrov", "Quinn", "Rossi")
_PLACES = (("Tokyo", "JP"), ("Lisbon", "PT"), ("Leeds", "GB"), ("Lyon", "FR"), ("Graz", "AT"), ("Boston", "US"))
_THINGS: Mapping[Category, tuple[str, ...]] = {
    "kitchen": ("kettle", "bread knife", "mixing bowl", "tea towel"),
    "garden": ("watering can", "hand trowel", "seed tray", "rain gauge"),
    "office": ("desk lamp", "notebook", "paper tray", "pen holder"),
    "sport": ("skipping rope", "yoga mat", "water bottle", "head torch"),
    "toys": ("wooden train", "kite", "puzzle", "spinning top"),
}
_MAKES = ("Alder", "Birch", "Cedar", "Damson")


@dataclass(slots=True)
class Shop:
    """Everything that the tools read and change. *stock* counts pieces by product and warehouse."""

    customers: dict[str, Customer]
    products: dict[str, Product]
    orders: dict[str, Order]
    shipments: dict[str, Shipment]
    returns: dict[str, Return]
    invoices: dict[str, Invoice]
    suppliers: dict[str, Supplier]
    purchases: dict[str, Purchase]
    discounts: dict[str, Discount]
    stock: dict[tuple[str, Warehouse], int]


def make_shop() -> Shop:
    """A new shop in its first state."""
    customers = {c.id: c for c in map(_customer, range(1, CUSTOMERS + 1))}
    products = {p.id: p for p in map(_product, range(1, PRODUCTS + 1))}
    orders = {o.id: o for o in (_order(number, products) for number in range(1, ORDERS + 1))}
    suppliers = {s.id: s for s in map(_supplier, range(1, SUPPLIERS + 1))}
    purchases = {p.id: p for p in (_purchase(number, products) for number in range(1, 41))}
    discounts = {d.code: d for d in (Discount("SPRING10", 10, "2026-05-31"), Discount("SUMMER15", 15, "2026-08-31"))}
    stock = {
        (product, warehouse): (number * 37 + place * 53) % 90
        for number, product in enumerate(products, 1)
        for place, warehouse in enumerate(WAREHOUSES)
    }
    invoices = {i.id: i for i in (_invoice(number, order) for number, order in enumerate(orders.values(), 1))}
    sent = [order for order in orders.values() if order.status in ("shipped", "delivered")]
    shipments = {s.id: s for s in (_shipment(number, order) for number, order in enumerate(sent, 1))}
    delivered = [order for order in sent if order.status == "delivered"][::25]
    returns = {r.id: r for r in (_return(number, order) for number, order in enumerate(delivered, 1))}
    return Shop(customers, products, orders, shipments, returns, invoices, suppliers, purchases, discounts, stock)


def _customer(number: int) -> Customer:
    first, last = _FIRST[(number - 1) % len(_FIRST)], _LAST[(number - 1) // len(_FIRST)]
    city, country = _PLACES[number % len(_PLACES)]
    since = TODAY - timedelta(days=400 + number * 17)
    email = f"{first}.{last}@example.com".lower()
    return Customer(f"cust_{number:04}", f"{first} {last}", email, city, country, since.isoformat(), number % 3 == 0)


def _product(number: int) -> Product:
    category = CATEGORIES[number % len(CATEGORIES)]
    things = _THINGS[category]
    thing = things[number // len(CATEGORIES) % len(things)]
    make = _MAKES[(number - 1) // 20]
    description = (
        f"The {make} {thing} from our {category} range. Made to be repaired rather than replaced: every part can be "
        f"ordered for ten years. Packed without plastic, {200 + number * 13} g, model {number * 101}."
    )
    return Product(
        f"prod_{number:04}",
        f"{make} {thing}",
        category,
        450 + number * 271 % 9_000,
        f"sup_{number % SUPPLIERS + 1:04}",
        description,
    )


def _order(number: int, products: Mapping[str, Product]) -> Order:
    placed = TODAY - timedelta(days=(ORDERS - number) // 4)
    items = tuple(
        OrderItem(product.id, 1 + (number + line) % 3, product.price_cents)
        for line in range(1 + number % 3)
        for product in [products[f"prod_{(number * 7 + line * 31) % PRODUCTS + 1:04}"]]
    )
    return Order(
        f"ord_{number:04}",
        f"cust_{number * 11 % CUSTOMERS + 1:04}",
        placed.isoformat(),
        _order_status(number),
        items,
        sum(item.quantity * item.unit_price_cents for item in items),
    )


def _order_status(number: int) -> OrderStatus:
    """One order in twelve waits for goods, whatever its age, so that there is always something to cancel."""
    if number % 12 == 0:
        return "paid"
    if number % 29 == 0:
        return "cancelled"
    if number > ORDERS - 20:
        return "placed"
    if number > ORDERS - 50:
        return "packed"
    return "shipped" if number > ORDERS - 90 else "delivered"


def _invoice(number: int, order: Order) -> Invoice:
    issued = date.fromisoformat(order.placed_on)
    due = issued + timedelta(days=30)
    status: InvoiceStatus = "paid"
    if order.status == "cancelled":
        status = "cancelled"
    elif order.status == "placed" or number % 17 == 0:
        status = "overdue" if due < TODAY else "open"
    return Invoice(
        f"inv_{number:04}", order.id, order.customer_id, order.placed_on, due.isoformat(), order.total_cents, status
    )


def _shipment(number: int, order: Order) -> Shipment:
    sent = date.fromisoformat(order.placed_on) + timedelta(days=1)
    history = [f"{sent}: handed to the carrier"]
    status: ShipmentStatus = "in_transit"
    if order.status == "delivered":
        status = "delivered"
        history.append(f"{sent + timedelta(days=2 + number % 4)}: delivered")
    carrier = CARRIERS[number % len(CARRIERS)]
    return Shipment(
        f"ship_{number:04}", order.id, carrier, f"{carrier[:2].upper()}{number * 7919:08}", status, tuple(history)
    )


def _return(number: int, order: Order) -> Return:
    item = order.items[0]
    opened = date.fromisoformat(order.placed_on) + timedelta(days=9)
    return Return(
        f"ret_{number:04}",
        order.id,
        item.product_id,
        1,
        _REASONS[number % len(_REASONS)],
        _RETURN_STATUSES[number % len(_RETURN_STATUSES)],
        min(opened, TODAY).isoformat(),
    )


def _supplier(number: int) -> Supplier:
    name = f"{_LAST[number % len(_LAST)]} & {_FIRST[number % len(_FIRST)]} Trading"
    return Supplier(
        f"sup_{number:04}", name, _PLACES[number % len(_PLACES)][1], f"sales{number}@example.org", 3 + number * 4 % 18
    )


def _purchase(number: int, products: Mapping[str, Product]) -> Purchase:
    product = products[f"prod_{number * 3 % PRODUCTS + 1:04}"]
    status: PurchaseStatus = "ordered" if number > 32 else "received"
    ordered = TODAY - timedelta(days=(41 - number) * 3)
    return Purchase(f"pur_{number:04}", product.supplier_id, product.id, number * 5, status, ordered.isoformat())

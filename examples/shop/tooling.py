"""Makes a function a tool of the shop: its hints, its argument types, and what it says when it refuses."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeVar

from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field

Record = TypeVar("Record")

OrderId = Annotated[str, Field(description="Order id.", pattern=r"^ord_[0-9]{4,}$", examples=["ord_0012"])]
CustomerId = Annotated[str, Field(description="Customer id.", pattern=r"^cust_[0-9]{4,}$", examples=["cust_0007"])]
ProductId = Annotated[str, Field(description="Product id.", pattern=r"^prod_[0-9]{4,}$", examples=["prod_0003"])]
ShipmentId = Annotated[str, Field(description="Shipment id.", pattern=r"^ship_[0-9]{4,}$", examples=["ship_0001"])]
ReturnId = Annotated[str, Field(description="Return id.", pattern=r"^ret_[0-9]{4,}$", examples=["ret_0002"])]
InvoiceId = Annotated[str, Field(description="Invoice id.", pattern=r"^inv_[0-9]{4,}$", examples=["inv_0017"])]
SupplierId = Annotated[str, Field(description="Supplier id.", pattern=r"^sup_[0-9]{4,}$", examples=["sup_0004"])]
PurchaseId = Annotated[str, Field(description="Purchase id.", pattern=r"^pur_[0-9]{4,}$", examples=["pur_0035"])]
DiscountCode = Annotated[str, Field(description="Discount code.", pattern=r"^[A-Z0-9]{4,16}$", examples=["SUMMER15"])]
Day = Annotated[
    str, Field(description="A date, YYYY-MM-DD.", pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$", examples=["2026-06-01"])
]
Email = Annotated[
    str, Field(description="E-mail address.", pattern=r"^[^@ ]+@[^@ ]+\.[a-z]+$", examples=["ada@example.com"])
]
Country = Annotated[str, Field(description="Country, ISO two letters.", pattern=r"^[A-Z]{2}$", examples=["JP"])]
Words = Annotated[str, Field(description="Words to search for.", min_length=2, max_length=80)]
Quantity = Annotated[int, Field(description="How many pieces.", ge=1, le=1_000)]
Cents = Annotated[int, Field(description="Price in cents.", ge=1, le=10_000_000)]
Limit = Annotated[int, Field(description="How many rows at most.", ge=1, le=100)]
Offset = Annotated[int, Field(description="How many rows to skip.", ge=0)]

Effect = Literal["reads", "changes", "destroys"]

_HINTS: Mapping[Effect, ToolAnnotations] = {
    "reads": ToolAnnotations(read_only_hint=True, open_world_hint=False),
    "changes": ToolAnnotations(read_only_hint=False, destructive_hint=False, open_world_hint=False),
    "destroys": ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False),
}


def tools(effect: Effect, *functions: Callable[..., Any]) -> list[Tool]:
    """One tool a function, named like it; a function that gives text has no structured result."""
    return [_tool(function, _HINTS[effect]) for function in functions]


def found(records: Mapping[str, Record], key: str, noun: str) -> Record:
    """The record of *key*. Raises ToolError that names what is missing."""
    try:
        return records[key]
    except KeyError:
        raise ToolError(f"There is no {noun} {key}.") from None


def require(condition: bool, otherwise: str) -> None:
    """Raises ToolError with *otherwise* as its text."""
    if not condition:
        raise ToolError(otherwise)


def next_id(records: Mapping[str, object], prefix: str) -> str:
    """The id after the highest in use, so that a deleted one is not given again while later ones live."""
    highest = max((int(key.rpartition("_")[2]) for key in records), default=0)
    return f"{prefix}_{highest + 1:04}"


def page(rows: Sequence[Record], limit: int, offset: int) -> tuple[Record, ...]:
    return tuple(rows[offset : offset + limit])


def _tool(function: Callable[..., Any], hints: ToolAnnotations) -> Tool:
    text_only = function.__annotations__["return"] is str
    tool = Tool.from_function(function, annotations=hints, structured_output=not text_only)
    tool.parameters["additionalProperties"] = False
    return tool

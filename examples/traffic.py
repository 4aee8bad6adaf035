"""Chats as the people of a shop would have them with the demo's model, one after another (OPS-266).

The same seed asks the same questions in the same order. They go over HTTP, as those of anybody else.
"""

import http.client
import json
import threading
import urllib.request
from collections.abc import Iterator
from random import Random

# What is asked more often stands there more often. {c}, {o}, {p}, {i} and {s} are ids of the shop.
_QUESTIONS = (
    *("get order {o}",) * 6,
    *("list the orders of customer {c}",) * 5,
    *("search customers named an",) * 2,
    *("get customer {c}",) * 4,
    *("get product {p}",) * 5,
    *("check the inventory of product {p}",) * 4,
    *("get invoice {i}",) * 3,
    *("list the invoices of customer {c}",) * 2,
    *("track shipment {s}",) * 3,
    *("What time is it in Tokyo?", "What time is it in Paris?"),
    *("show the last 3 commits of this repository",) * 2,
    "show the status of the git repository",
    "cancel order {o}",
    "list the purchases of supplier {u}",
    "get supplier {u}",
    "get return {r}",
    "unpaid invoices of customer {c}",
    "list the products in the garden",
    "mark invoice {i} as paid",
    "archive product {p}",
    "list suppliers",
    "list discounts",
    "list returns",
    "list the warehouses",
    "report the best customers",
    "report sales by month",
    "export all orders",
)
_MOST = {"c": 60, "o": 180, "p": 60, "i": 180, "s": 110, "u": 8, "r": 30}
_NAMES = {"c": "cust", "o": "ord", "p": "prod", "i": "inv", "s": "ship", "u": "sup", "r": "ret"}
_ANSWER_S = 30.0
_PAUSE_S = (0.3, 2.5)


def questions(seed: int) -> Iterator[str]:
    """Without an end. Ids that are not there are asked for too, as people do."""
    random = Random(seed)
    while True:
        ids = {letter: f"{_NAMES[letter]}_{random.randint(1, most):04}" for letter, most in _MOST.items()}
        yield random.choice(_QUESTIONS).format(**ids)


def ask(url: str, key: str, question: str, number: int) -> None:
    """One chat, read to its end. Raises OSError."""
    body = {"messages": [{"role": "user", "content": question}], "metadata": {"correlation_id": f"demo-{number}"}}
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/engine/chat", json.dumps(body).encode(), headers)
    try:
        # Without the proxies of the environment: the gate is on this machine.
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=_ANSWER_S) as answer:
            answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error


def record(url: str, key: str, chats: int, seed: int = 1) -> None:
    """So many chats without a pause."""
    for number, question in zip(range(chats), questions(seed), strict=False):
        ask(url, key, question, number)


def trickle(url: str, key: str) -> None:
    """Chats from a thread of their own, a second or two apart, until the gate is gone."""

    def run() -> None:
        pauses, wait = Random(2), threading.Event()
        for number, question in enumerate(questions(1)):
            wait.wait(pauses.uniform(*_PAUSE_S))
            try:
                ask(url, key, question, number)
            except OSError:
                return

    threading.Thread(target=run, name="demo-traffic", daemon=True).start()

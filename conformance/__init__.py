"""The gate judged from outside: the official conformance suite (``make conformance``), and the clients that people use
(``make clients``). Everything foreign is pinned and goes below ``.venv/conformance``."""

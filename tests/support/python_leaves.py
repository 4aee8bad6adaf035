"""A module that ends the process that imports it, or tries to."""

raise SystemExit(3)

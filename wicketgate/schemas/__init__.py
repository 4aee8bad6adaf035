"""Validation of arguments against the schemas that upstreams declare.

Public is ``validation``: ``compile_schema`` makes a ``Validator``, which checks and repairs arguments. ``patterns``
runs ECMA-262 patterns in linear time, and ``messages`` explains a refusal.
"""

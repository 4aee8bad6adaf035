"""The documentation as a site (``make site``): pages are copied and generated, built by Zensical, and checked.

No part of the product. Runs on the standard library and on what ``requirements/site.lock`` lists, in an environment of
its own.
"""

"""Ties a test to the clauses of ``docs/spec`` that it shows: ``@requirement("CARD-5", "EXEC-1")``."""

import pytest


def requirement(*ids: str) -> pytest.MarkDecorator:
    return pytest.mark.requirement(*ids)

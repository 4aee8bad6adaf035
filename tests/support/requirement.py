"""Ties a test to the clause or case it shows: ``@requirement("S0 §4.4", "E41")``."""

import pytest


def requirement(*ids: str) -> pytest.MarkDecorator:
    return pytest.mark.requirement(*ids)

"""Tests of `conformance/`: the judge of the suite and the names that its proxy undoes."""

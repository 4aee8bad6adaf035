"""Ids that are made many at a time."""

import multiprocessing
import re

from tests.support.requirement import requirement
from wicketgate.random_ids import random_id


@requirement("OPS-14")
def test_no_two_are_the_same() -> None:
    ids = [random_id() for _ in range(2_000)]
    assert len(set(ids)) == 2_000
    assert all(re.fullmatch("[0-9a-f]{24}", each) for each in ids)


@requirement("OPS-14")
def test_a_process_that_is_forked_off_makes_others() -> None:
    random_id()  # the rest of this portion waits
    context = multiprocessing.get_context("fork")
    theirs: multiprocessing.SimpleQueue[list[str]] = context.SimpleQueue()
    child = context.Process(target=lambda: theirs.put([random_id() for _ in range(1_000)]))
    child.start()
    ours = {random_id() for _ in range(1_000)}
    assert ours.isdisjoint(theirs.get())
    child.join()

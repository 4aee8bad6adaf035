"""A clock that a test moves by hand."""


class Clock:
    """Seconds, as the test says."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

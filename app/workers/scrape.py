"""The metrics of several processes as one text of the Prometheus format (OPS-180).

Each series gets the label ``worker``: a counter of a process that was replaced begins at 0 again, which is visible in
its own series, and would be a dip in a sum.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

_HELP = "# HELP "


def merged(texts: Mapping[int, str]) -> str:
    """Returns the metrics in *texts*, each by the number of its worker, one family after the other."""
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for worker, text in texts.items():
        for name, head, lines in _families(text.splitlines()):
            heads.setdefault(name, head)
            samples.setdefault(name, []).extend(_labelled(line, worker) for line in lines)
    return "".join(f"{line}\n" for name, head in heads.items() for line in (*head, *samples[name]))


def workers_known(answered: Iterable[int], count: int) -> str:
    """Returns the metric that says which of *count* workers have *answered*."""
    there = set(answered)
    lines = [
        "# HELP wicketgate_worker_up 1 if this worker has answered the scrape.",
        "# TYPE wicketgate_worker_up gauge",
        *(f'wicketgate_worker_up{{worker="{number}"}} {int(number in there)}.0' for number in range(count)),
    ]
    return "".join(f"{line}\n" for line in lines)


def starts_text(starts: int) -> str:
    """Returns the metric that says how often the worker at this place was started."""
    return (
        "# HELP wicketgate_worker_starts_total Starts of the worker at this place.\n"
        "# TYPE wicketgate_worker_starts_total counter\n"
        f"wicketgate_worker_starts_total {starts}.0\n"
    )


def _families(lines: Sequence[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yields the name, the comments and the samples of each family."""
    name, head, samples = "", list[str](), list[str]()
    for line in lines:
        if line.startswith(_HELP):
            if name:
                yield name, head, samples
            name, head, samples = line.split(" ", 3)[2], [line], []
        elif line.startswith("#"):
            head.append(line)
        elif line:
            samples.append(line)
    if name:
        yield name, head, samples


def _labelled(sample: str, worker: int) -> str:
    """Returns *sample* with the label. A name holds neither a brace nor a blank."""
    label = f'worker="{worker}"'
    brace, blank = sample.find("{"), sample.find(" ")
    if 0 <= brace < blank:
        rest = sample[brace + 1 :]
        return f"{sample[:brace]}{{{label}{'' if rest.startswith('}') else ','}{rest}"
    return f"{sample[:blank]}{{{label}}}{sample[blank:]}"

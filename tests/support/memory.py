"""How much memory a process and its descendants take, a shared page counted once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SAMPLE_S = 0.1
"""Between two looks: nothing tells when a process takes memory."""


@contextmanager
def peak_memory(process: int) -> Iterator[list[float]]:
    """Collect the resident memory of a process and its descendants, in MB; the first figure is from before."""
    found, stop = [total(process)], threading.Event()

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            found.append(total(process))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield found
    finally:
        stop.set()
        thread.join()


def total(process: int) -> float:
    """Give what a process and its descendants take now, in MB."""
    return sum(map(resident, family(process))) / 1e6


def family(process: int) -> Iterator[int]:
    """Give a process and its descendants."""
    yield process
    for listing in Path(f"/proc/{process}/task").glob("*/children"):
        try:
            children = listing.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from family(int(child))


def resident(process: int) -> int:
    """Give a process's share of the resident memory in bytes; 0 for one that has ended, and for PostgreSQL's server."""
    try:
        if "postgres" in Path(f"/proc/{process}/comm").read_text():
            return 0
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))

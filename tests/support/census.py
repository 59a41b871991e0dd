"""What exists in this process: threads, children, descriptors, segments, tasks."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import sys
import threading
import time
from pathlib import Path

PATIENCE_S = 5.0
"""How long something that is ending may take to end. Waited for on its own event, where it has one."""

SELF = Path("/proc/self")
LINUX = SELF.exists()


def _threads() -> set[threading.Thread]:
    return set(threading.enumerate())


def _children() -> dict[int, str]:
    """Child processes, zombies included: pid -> command line and state."""
    found = {}
    for pid in _child_pids():
        try:
            folder = Path(f"/proc/{pid}")
            # "pid (command) state ppid ...": the command may hold spaces and brackets.
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        found[pid] = f"{line.strip()[:200]} (state {state})"
    return found


def _child_pids() -> list[int]:
    found: list[int] = []
    for listing in (SELF / "task").glob("*/children") if LINUX else ():
        try:
            found.extend(map(int, listing.read_text().split()))
        except (FileNotFoundError, ProcessLookupError):  # the thread has just ended
            continue
    return found


def _descriptors() -> dict[tuple[int, str], str]:
    found = {}
    for entry in (SELF / "fd").iterdir() if LINUX else ():
        try:
            target = str(entry.readlink())
        except FileNotFoundError:  # the one that lists the folder
            continue
        found[int(entry.name), target] = f"descriptor {entry.name} -> {target}"
    return found


def _segments() -> set[str]:
    """Shared-memory segments that this process has mapped."""
    if not LINUX:
        return set()
    lines = (SELF / "maps").read_text().splitlines()
    return {line.split(None, 5)[5] for line in lines if "/dev/shm/" in line}


def _tasks() -> set[asyncio.Task[object]]:
    registry = getattr(asyncio.tasks, "_scheduled_tasks", None) or getattr(asyncio.tasks, "_all_tasks", ())
    return {task for task in list(registry) if not task.done()}


def _resource_tracker() -> tuple[int | None, int | None]:
    """The pid and descriptor of the standard library's own helper, which lives as long as we do."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    tracker = getattr(module, "_resource_tracker", None)
    return getattr(tracker, "_pid", None), getattr(tracker, "_fd", None)


def _wait_for_exit(pid: int, until: float) -> None:
    """Wait until the child has been reaped by whoever owns it."""
    try:
        handle = os.pidfd_open(pid)
    except (AttributeError, ProcessLookupError):
        return
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        poll.poll(max(0.0, until - time.monotonic()) * 1000)
    finally:
        os.close(handle)


class Census:
    """What exists in this process now, and what has been added since."""

    def __init__(self) -> None:
        self.threads = _threads()
        self.children = set(_children())
        self.descriptors = set(_descriptors())
        self.segments = _segments()
        self.tasks = _tasks()

    def left(self, patience_s: float = PATIENCE_S) -> list[str]:
        """Name what is left, after waiting a bounded time for what is just ending."""
        until = time.monotonic() + patience_s
        for thread in _threads() - self.threads:
            thread.join(max(0.0, until - time.monotonic()))
        for pid in set(_children()) - self.children - {_resource_tracker()[0]}:
            _wait_for_exit(pid, until)
        found = self._added()
        if found:  # cycles may keep a finished task or a closed pipe alive
            gc.collect()
            found = self._added()
        return found

    def _added(self) -> list[str]:
        tracker_pid, tracker_fd = _resource_tracker()
        children, descriptors = _children(), _descriptors()
        return [
            *(f"thread {thread.name!r}" for thread in _threads() - self.threads),
            *(f"child {pid}: {children[pid]}" for pid in children.keys() - self.children - {tracker_pid}),
            *(descriptors[key] for key in descriptors.keys() - self.descriptors if key[0] != tracker_fd),
            *(f"shared memory {name}" for name in _segments() - self.segments),
            *(f"task {task!r}" for task in _tasks() - self.tasks),
        ]

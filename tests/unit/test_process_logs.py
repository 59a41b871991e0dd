"""Records logged in a child: they reach the handlers of the parent once, by the rules of the parent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from support.workers import Hands


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def kept() -> Iterator[Kept]:
    """A handler of the root that keeps what it gets."""
    handler, root = Kept(), logging.getLogger()
    root.addHandler(handler)
    yield handler
    root.removeHandler(handler)


class Unsendable:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __str__(self) -> str:
        return "in words"


def log(value: Any) -> Any:
    logger = logging.getLogger("app.part")
    if value == "unsendable":
        logger.warning("got %s", Unsendable(), extra={"thing": Unsendable()})
    elif value == "error":
        try:
            raise ValueError("bad")
        except ValueError:
            logger.exception("failed with %d", 3)
    elif value == "misfit":
        logger.warning("%d %d", *[1])
    elif value == "handlers":
        logging.basicConfig(force=True)
        logger.addHandler(logging.StreamHandler())
        logger.propagate = False
        logger.warning("once")
    else:
        logger.debug("fine %s", value)
        logger.warning("value %s of %s", value, {"a": 1}, extra={"user": "x"})
    return value


def test_a_record_arrives_once_with_stage_and_seq_and_its_arguments(kept):
    with Hands(log) as hands:
        hands.submit(1, [5, 6])
        hands.heard.wait("answered")
    assert [(r.getMessage(), r.headway_stage, r.headway_seq) for r in kept.records] == [
        ("value 5 of {'a': 1}", "work", 100),
        ("value 6 of {'a': 1}", "work", 101),
    ]
    record = kept.records[0]
    assert (record.name, record.levelname, record.user, record.funcName) == ("app.part", "WARNING", "x", "log")
    assert (record.msg, record.args) == ("value %s of %s", (5, {"a": 1}))
    assert record.process == hands.worker.pid


def test_levels_are_those_of_the_parent(kept):
    logger = logging.getLogger("app")
    logger.setLevel(logging.DEBUG)
    try:
        with Hands(log) as hands:
            hands.submit(1, [5])
            hands.heard.wait("answered")
            assert [r.levelname for r in kept.records] == ["DEBUG", "WARNING"]
            logger.setLevel(logging.ERROR)
            hands.submit(2, [6])
            hands.heard.wait("answered", 2)
            assert len(kept.records) == 2
    finally:
        logger.setLevel(logging.NOTSET)


def test_what_cannot_travel_arrives_as_text(kept):
    with Hands(log) as hands:
        hands.submit(1, ["unsendable", "error", "misfit"])
        hands.heard.wait("answered")
    first, second, third = kept.records
    assert first.getMessage() == "got in words"
    assert second.getMessage() == "failed with 3"
    assert "ValueError: bad" in second.exc_text
    assert second.exc_info is None
    assert "'%d %d'" in third.getMessage()


def test_handlers_made_in_a_child_do_not_make_a_record_come_twice_or_never(kept, capfd):
    with Hands(log) as hands:
        hands.submit(1, ["handlers"])
        hands.heard.wait("answered")
    assert [r.getMessage() for r in kept.records] == ["once"]
    assert capfd.readouterr().err == ""


def test_a_set_up_and_a_finalizer_may_log(kept):
    class Loud:
        def __del__(self) -> None:
            logging.getLogger("loud").warning("gone")

    def setup() -> None:
        logging.getLogger("loud").warning("opening")

    def work(value: int, _: None) -> int:
        Loud()
        return value

    with Hands(work, setup=setup) as hands:
        hands.submit(1, [1, 2])
        hands.heard.wait("answered")
    assert [(r.getMessage(), r.headway_seq) for r in kept.records] == [
        ("opening", None), ("gone", 100), ("gone", 101),
    ]  # fmt: skip


def test_a_handler_that_raises_harms_no_worker():
    class Broken(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError("no")

    logger, broken = logging.getLogger("app.part"), Broken()
    logger.addFilter(broken)
    try:
        with Hands(log) as hands:
            hands.submit(1, [5])
            assert hands.heard.wait("answered").values == [5]
    finally:
        logger.removeFilter(broken)

"""Look-ups: once per distinct key, whoever asks; what was found reaches the rows, what failed sets them aside."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from functools import wraps
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import headway
from headway import Pipeline, PlanError, Reject, Retry, RetryAfter
from headway.importer.job import ImportJob, import_file
from headway.importer.lookup import FAILED_FOR_S, Cache, Entry, Finder, Lookup
from support.importing import query

# ---------------------------------------------------------------- one process


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: Any, **given: Any) -> None:
        asyncio.run(test(*args, **given))

    return run


def made(function: Any, **options: Any) -> Lookup:
    found: Lookup = headway.lookup(key="k", **options)(function).__headway_lookup__
    return found


@on_a_loop
async def test_keys_asked_for_at_once_are_called_once_and_then_known() -> None:
    calls: list[str] = []
    gate = asyncio.Event()

    async def value(key: str) -> str | None:
        calls.append(key)
        await gate.wait()
        return key.upper() if key != "none" else None

    finder = Finder(made(value), Cache(10))
    asked = [asyncio.create_task(finder.find(keys)) for keys in (["a", "b"], ["b", "none"], ["a"])]
    await asyncio.sleep(0)  # a turn of the loop for the others
    gate.set()
    first, second, third = await asyncio.gather(*asked)
    assert {key: entry.value for key, entry in {**first, **second, **third}.items()} == {
        "a": "A",
        "b": "B",
        "none": None,
    }
    assert (await finder.find(["none", "a"]))["none"] == Entry(None)
    assert sorted(calls) == ["a", "b", "none"]


@on_a_loop
async def test_no_more_calls_run_at_once_than_workers() -> None:
    running = peak = 0

    async def value(key: int) -> int:
        nonlocal running, peak
        running += 1
        peak = max(peak, running)
        await asyncio.sleep(0)  # a turn of the loop for the others
        running -= 1
        return -key

    found = await Finder(made(value, workers=7), Cache(1000)).find(range(100))
    assert [found[key].value for key in range(100)] == [-key for key in range(100)]
    assert peak == 7


@on_a_loop
async def test_a_failed_call_is_made_again_and_what_keeps_failing_is_known_for_a_while() -> None:
    calls: Counter[str] = Counter()

    async def value(key: str) -> int:
        calls[key] += 1
        if key == "bad" or calls[key] < 3:
            raise ConnectionError(key)
        return calls[key]

    cache = Cache(10)
    finder = Finder(made(value, retry=Retry(3, on=ConnectionError, backoff=0.0)), cache)
    found = await finder.find(["late", "bad"])
    assert (found["late"], calls) == (Entry(3), Counter(late=3, bad=3))
    assert isinstance(found["bad"].error, ConnectionError)
    await finder.find(["bad"])
    assert calls["bad"] == 3
    now = asyncio.get_running_loop().time()
    assert cache.get("bad", now) is not None
    assert cache.get("bad", now + FAILED_FOR_S) is None


@pytest.mark.parametrize("error", [Reject("closed"), ValueError("x"), SystemExit(3), asyncio.CancelledError()])
@on_a_loop
async def test_what_is_no_reason_to_try_again_fails_at_once(error: BaseException) -> None:
    calls = []

    async def value(key: str) -> None:
        calls.append(key)
        raise error

    found = await Finder(made(value, retry=Retry(5, on=OSError)), Cache(10)).find(["a"])
    assert found["a"].error is error
    assert calls == ["a"]


@on_a_loop
async def test_a_look_up_may_ask_to_be_called_later_up_to_a_limit() -> None:
    calls: list[str] = []

    async def value(key: str) -> str:
        calls.append(key)
        if calls.count(key) < 4 or key == "never":
            raise RetryAfter(0.001)
        return key.upper()

    found = await Finder(made(value, retry=Retry(1, max_pause=0.005)), Cache(10)).find(["a", "never"])
    assert found["a"].value == "A"
    assert isinstance(found["never"].error, RetryAfter)
    assert calls.count("a") == 4
    assert calls.count("never") == 6


@on_a_loop
async def test_a_call_that_does_not_end_in_time_is_ended() -> None:
    async def value(key: str) -> None:
        await asyncio.Event().wait()

    found = await Finder(made(value, timeout=0.001, retry=1), Cache(10)).find(["a"])
    assert str(found["a"].error) == "no answer within 0.001 s"


@on_a_loop
async def test_the_key_that_was_not_asked_for_longest_leaves_a_full_cache() -> None:
    calls = []

    async def value(key: str) -> str:
        calls.append(key)
        return key

    finder = Finder(made(value), Cache(2))
    for keys in ("ab", "a", "c", "a", "b"):
        assert {entry.value for entry in (await finder.find(keys)).values()} == set(keys)
    assert calls == ["a", "b", "c", "b"]
    assert len(await finder.find("uvwxyz")) == 6  # more than the cache holds


@on_a_loop
async def test_a_failed_call_lets_the_others_go_on_meanwhile() -> None:
    order = []

    async def value(key: int) -> int:
        order.append(key)
        if order.count(0) == 1 and key == 0:
            raise OSError
        return key

    await Finder(made(value, workers=1, retry=Retry(2, backoff=0.0)), Cache(10)).find(range(3))
    assert order == [0, 1, 2, 0]


def test_it_is_a_function_for_map_with_the_same_cache() -> None:
    calls = []

    @headway.lookup(key="name")
    async def length(name: str) -> int:
        calls.append(name)
        return len(name)

    assert Pipeline(["a", "bb", "a", "bb"] * 10).map(length, workers=8).collect() == [1, 2, 1, 2] * 10
    assert Pipeline(["bb", "ccc"]).map(length).collect() == [2, 3]
    assert sorted(calls) == ["a", "bb", "ccc"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"key": ""}, "key is the name of a column"),
    ({"key": "k", "workers": 0}, "workers is a whole number from 1, not 0"),
    ({"key": "k", "cache": 1.5}, "cache is a whole number from 1"),
    ({"key": "k", "timeout": -1}, "timeout is a number of seconds above 0"),
    ({"key": "k", "retry": 0}, "attempts must be a whole number from 1"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_a_wrong_option_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        headway.lookup(**options)


def test_a_function_that_is_not_async_is_refused() -> None:
    with pytest.raises(PlanError, match="has to be an async function"):
        headway.lookup(key="k")(lambda key: key)


# ---------------------------------------------------------------- an import, against a server


class Service:
    """A service over HTTP: customers by account; some are missing, late, broken or silent."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.at_once = self.peak = 0
        self.together = 1  # so many have to be here at once before the first of them is answered
        self.closing = threading.Event()
        lock = threading.Condition()
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                account = self.path.removeprefix("/")
                with lock:
                    service.requests[account] += 1
                    number = service.requests[account]
                    service.at_once += 1
                    service.peak = max(service.peak, service.at_once)
                    lock.notify_all()
                    lock.wait_for(lambda: service.peak >= service.together, timeout=60)
                if account == "silent":
                    service.closing.wait()
                status = (
                    404
                    if account == "missing"
                    else 503
                    if account == "broken" or (account == "late" and number < 3)
                    else 200
                )
                body = json.dumps({"name": f"Customer {account}"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with suppress(OSError):  # the one who asked did not wait
                    self.wfile.write(body)
                with lock:
                    service.at_once -= 1

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


RULES = """
import asyncio
import json
import os

import headway
from headway import Retry
from headway import Reject


@headway.lookup(key="account", workers=10, timeout=TIMEOUT, retry=Retry(3, backoff=0.001))
async def customer(account):
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    try:
        writer.write(f"GET /{account} HTTP/1.0\\r\\n\\r\\n".encode())
        head, _, body = (await reader.read()).partition(b"\\r\\n\\r\\n")
    finally:
        writer.close()
    status = int(head.split()[1])
    if status == 404:
        return None
    if status != 200:
        raise ConnectionError(f"status {status}")
    return json.loads(body)["name"]


def book(row, *, customer):
    if customer is None:
        raise Reject("no_customer", row.account)
    return {"id": row.id, "name": customer}
"""
TABLES = {"tables": {"booked": {"columns": {"id": "int", "name": "text"}, "key": ["id"]}}}


def rules(folder: Path, service: Service, timeout: float = 60) -> str:
    path = folder / "rules.py"
    text = RULES.replace("PORT", str(service.server.server_port)).replace("TIMEOUT", str(timeout))
    path.write_text(text, encoding="utf-8")
    return f"{path}:book"


def source(folder: Path, accounts: list[str]) -> Path:
    path = folder / "source.csv"
    path.write_text("id,account,text\n" + "".join(f"{n},{a},{'x' * 100}\n" for n, a in enumerate(accounts)))
    return path


@pytest.mark.parametrize("target", ["bank.duckdb", "bank.db"])
def test_each_distinct_key_of_a_file_is_asked_for_once_over_all_ranges_and_workers(
    tmp_path: Path, service: Service, target: str
) -> None:
    accounts = [f"A-{(n * 7919) % 50}" for n in range(30_000)]  # three ranges
    service.together = 10
    result = import_file(
        source(tmp_path, accounts), tmp_path / target, process=rules(tmp_path, service, 300), tables=TABLES, workers=2
    )
    assert (result.written, result.rejected) == (30_000, 0)
    assert service.requests == Counter({f"A-{n}": 1 for n in range(50)})
    assert service.peak == 10
    found = query(tmp_path / target, "SELECT id, name FROM booked ORDER BY id")
    assert found == [(n, f"Customer {account}") for n, account in enumerate(accounts)]
    assert [stage["name"] for stage in result.report.to_dict()["stages"]] == ["lookup", "parse", "write"]
    assert {stage["in"] for stage in result.report.to_dict()["stages"]} == {30_000}


def test_misses_late_answers_and_failures_reach_the_rows_they_belong_to(tmp_path: Path, service: Service) -> None:
    accounts = ["good", "missing", "late", "broken", "", "silent", "good", "broken", "missing"]
    process = rules(tmp_path, service, timeout=0.5)
    path, target = source(tmp_path, accounts), tmp_path / "bank.db"
    schema = {"columns": {"account": {"type": "text", "nulls": [""]}}}
    import_file(path, target, process=process, tables=TABLES, schema=schema)
    assert query(target, "SELECT id, name FROM booked ORDER BY id") == [
        (0, "Customer good"), (2, "Customer late"), (6, "Customer good"),
    ]  # fmt: skip
    rejects = query(target, "SELECT line, stage, reason, message FROM _headway_rejects ORDER BY line")
    assert rejects == [
        (3, "process", "no_customer", "missing"),
        (5, "lookup", "ConnectionError", "customer('broken'): status 503"),
        (6, "process", "no_customer", "None"),
        (7, "lookup", "TimeoutError", "customer('silent'): no answer within 0.5 s"),
        (9, "lookup", "ConnectionError", "customer('broken'): status 503"),
        (10, "process", "no_customer", "missing"),
    ]
    assert service.requests == Counter(good=1, missing=1, late=3, broken=3, silent=3)


def test_keys_are_typed_by_the_schema_and_a_function_of_this_process_may_look_up(tmp_path: Path) -> None:
    path, target = tmp_path / "t.csv", tmp_path / "t.db"
    path.write_text("n\n1\nx\n2\n1\n")
    import_file(path, target, process=squared, column=["n=int"], tables={"tables": {"t": {"columns": {"n": "int"}}}})
    assert query(target, "SELECT n FROM t ORDER BY rowid") == [(1,), (4,), (1,)]
    assert query(target, "SELECT line, reason FROM _headway_rejects") == [(3, "bad_int")]


@headway.lookup(key="n")
async def square(n: int) -> int:
    return n * n


def squared(row: Any, *, square: int) -> tuple[int]:
    return (square,)


def test_a_process_that_dies_ends_the_run_and_the_same_job_goes_on(tmp_path: Path, service: Service) -> None:
    path, target = source(tmp_path, ["A"] * 10), tmp_path / "bank.db"
    process = rules(tmp_path, service)
    module = Path(process.rpartition(":")[0])
    good = module.read_text()
    module.write_text(good.replace("    status = int(", "    os.kill(os.getpid(), 9)\n    status = int("))
    with pytest.raises(headway.RunError, match=r"lines 2 to 11: .* that looks keys up was killed by SIGKILL"):
        import_file(path, target, process=process, tables=TABLES)
    module.write_text(good)
    assert import_file(path, target, process=process, tables=TABLES).written == 10


MISTAKES = [
    ("def f(row, *, customer):\n    return row\n", "its parameter 'customer' stands for a look-up"),
    (
        "@headway.lookup(key='account')\nasync def customer(key):\n    return 1\ndef f(row, *, customer):\n    return row\n",
        "its key 'account' is no column of the source, which has x, y",
    ),
    (
        "@headway.lookup(key='x')\nasync def customer(key):\n    return 1\n@headway.per_batch\ndef f(row, *, customer):\n    return row\n",
        "a function per batch takes no look-ups",
    ),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES)
def test_a_look_up_that_cannot_work_is_refused_and_nothing_is_touched(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rules.py").write_text("import headway\n" + text)
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    with pytest.raises(PlanError, match=message):
        ImportJob(tmp_path / "t.csv", tmp_path / "t.db", process=f"{tmp_path / 'rules.py'}:f").run()
    assert not (tmp_path / "t.db").exists()

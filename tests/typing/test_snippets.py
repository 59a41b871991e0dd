"""What mypy --strict accepts and rejects in programs that use the public surface. One run for all snippets."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy", reason="the snippets are judged by mypy, which is only in the group dev")

HEAD = """
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import assert_type
from headway import DROP, Failure, ImportResult, Pipeline, PlanError, Report, Run, import_file, read_dead_letters

"""

ACCEPTED = {
    "the item type flows from the source through map": """
        def parse(line: str) -> int:
            return len(line)
        assert_type(Pipeline(["a"]).map(parse), Pipeline[int])
        assert_type(Pipeline(["a"]).map(parse).collect(), list[int])
    """,
    "async functions are taken by the same call": """
        async def fetch(number: int) -> bytes:
            return bytes(number)
        assert_type(Pipeline([1]).map(fetch, workers=64), Pipeline[bytes])
    """,
    "the name of the parameter does not matter": """
        def first(anything: int) -> int:
            return anything
        async def second(_: int) -> str:
            return ""
        assert_type(Pipeline([1]).map(first).map(second).map(lambda text: len(text)), Pipeline[int])
    """,
    "filter keeps the type": """
        def good(value: int) -> bool:
            return value > 0
        async def better(value: int) -> bool:
            return value > 1
        assert_type(Pipeline([1]).filter(good).filter(better), Pipeline[int])
    """,
    "flat_map takes lists, generators and their async forms": """
        def words(line: str) -> list[str]:
            return line.split()
        def letters(word: str) -> Iterator[bytes]:
            yield word.encode()
        async def more(data: bytes) -> list[int]:
            return list(data)
        async def stream(number: int) -> AsyncIterator[float]:
            yield float(number)
        assert_type(Pipeline(["a"]).flat_map(words).flat_map(letters).flat_map(more).flat_map(stream), Pipeline[float])
    """,
    "batch makes lists and unbatch takes them apart": """
        def total(values: list[int]) -> int:
            return sum(values)
        assert_type(Pipeline([1]).batch(100, within=1.0), Pipeline[list[int]])
        assert_type(Pipeline([1]).batch(100).map(total), Pipeline[int])
        assert_type(Pipeline([1]).batch(100).unbatch(), Pipeline[int])
    """,
    "map_batches keeps the items": """
        def embed(texts: list[str]) -> list[float]:
            return [float(len(text)) for text in texts]
        async def embed_async(values: list[float]) -> Sequence[bytes | Failure]:
            return [b"" for _ in values]
        assert_type(Pipeline(["a"]).map_batches(embed, 32), Pipeline[float])
        Pipeline(["a"]).map_batches(embed, 32).map_batches(embed_async, 8, on_error="skip")
    """,
    "a function may filter with the sentinel": """
        from headway.core.block import Drop
        def positive(value: int) -> int | Drop:
            return value if value > 0 else DROP
        assert_type(Pipeline([1]).map(positive), Pipeline[int])
    """,
    "a set-up is the second argument": """
        class Connection:
            def get(self, key: int) -> str:
                return str(key)
        def look_up(key: int, connection: Connection) -> str:
            return connection.get(key)
        async def look_up_async(key: str, connection: Connection) -> int:
            return len(key)
        assert_type(Pipeline([1]).map(look_up, setup=Connection).map(look_up_async, setup=Connection), Pipeline[int])
    """,
    "sinks are functions and objects": """
        class Rows:
            def open(self, resume: dict[str, object] | None) -> None: ...
            def write(self, items: Sequence[int]) -> None: ...
            def commit(self, state: dict[str, object]) -> None: ...
            def close(self, error: BaseException | None) -> None: ...
        def write(values: list[int]) -> None: ...
        async def write_async(value: int) -> None: ...
        assert_type(Pipeline([1]).to(Rows()).run(), Report)
        Pipeline([1]).batch(10).to(write, order="none", workers=2)
        Pipeline([1]).to(write_async)
    """,
    "sources are iterables, async iterables, objects that are read, and functions that return one": """
        async def rows() -> AsyncIterator[int]:
            yield 1
        class Reads:
            def read(self, n: int) -> Sequence[int]:
                return []
        assert_type(Pipeline(rows), Pipeline[int])
        assert_type(Pipeline(rows()), Pipeline[int])
        assert_type(Pipeline(Reads()), Pipeline[int])
        assert_type(Pipeline(lambda: [1]), Pipeline[int])
        assert_type(Pipeline(iter(["a"])), Pipeline[str])
        Pipeline(read_dead_letters("letters.jsonl"))
    """,
    "an import takes the options of the command and gives its counts": """
        result = import_file("a.csv", "a.db", key=["id"], mode="upsert", column={"id": "int"}, workers=2, max_rejects="1%")
        assert_type(result, ImportResult)
        assert_type(result.written, int)
    """,
    "a look-up keeps the types of its function, and a batch function its own": """
        import headway
        @headway.lookup(key="account", workers=10, timeout=None)
        async def customer(key: str) -> int:
            return len(key)
        @headway.per_batch
        def f(batch: object) -> object:
            return headway.reject(batch, [True], "why")
        assert_type(Pipeline(["a"]).map(customer), Pipeline[int])
        def row(row: object, *, customer: int) -> tuple[int]:
            return (customer,)
        import_file("a.csv", "a.db", process=row)
    """,
    "iterating gives the items, sync and async, and a run has a report": """
        pipeline = Pipeline(["a"]).map(len)
        for value in pipeline:
            assert_type(value, int)
        with pipeline.open(dead_letters="letters.jsonl") as run:
            assert_type(run, Run[int])
            for value in run:
                assert_type(value, int)
        async def main() -> Report:
            async for value in pipeline:
                assert_type(value, int)
            async with pipeline.open() as other:
                async for value in other:
                    assert_type(value, int)
            return await pipeline.arun()
    """,
}

REJECTED = {
    "an import's option that there is not, or of another type": """
        import_file("a.csv", "a.db", keys="id")  # error
        import_file("a.csv", "a.db", mode="merge")  # error
    """,
    "a look-up of a function that is not async": """
        import headway
        @headway.lookup(key="account")  # error
        def customer(key: str) -> int:
            return 1
    """,
    "a stage whose input is not what the stage before gives": """
        def parse(line: str) -> int:
            return len(line)
        Pipeline(["a"]).map(parse).map(parse)  # error
    """,
    "a filter of another type": """
        def good(value: str) -> bool:
            return bool(value)
        Pipeline([1]).filter(good)  # error
    """,
    "a sink of another type": """
        def write(value: str) -> None: ...
        Pipeline([1]).to(write)  # error
    """,
    "a sink of items behind a batch": """
        def write(value: int) -> None: ...
        Pipeline([1]).batch(10).to(write)  # error
    """,
    "an option that there is not, or of another type": """
        Pipeline([1]).map(abs, worker=2)  # error
        Pipeline([1]).map(abs, on="fiber")  # error
    """,
    "the outputs taken for something else": """
        texts: list[str] = Pipeline(["a"]).map(len).collect()  # error
    """,
}


def _program(body: str) -> str:
    lines = body.strip("\n").splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    return HEAD + "\n".join(line[indent:] for line in lines) + "\n"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[int]]:
    """Lines with an error, by snippet."""
    folder: Path = tmp_path_factory.mktemp("snippets")
    files = {}
    for number, (name, body) in enumerate({**ACCEPTED, **REJECTED}.items()):
        files[f"snippet_{number}.py"] = name
        (folder / f"snippet_{number}.py").write_text(_program(body))
    config = folder / "mypy.ini"
    config.write_text("[mypy]\nstrict = True\nfollow_imports = silent\n")
    out = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", config, "--no-error-summary", "--cache-dir", folder / "cache", *files],
        cwd=folder, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert out.returncode in (0, 1), out.stdout + out.stderr
    found: dict[str, set[int]] = {name: set() for name in files.values()}
    for line in out.stdout.splitlines():
        match = re.match(r"(snippet_\d+\.py):(\d+): error: ", line)
        if match:
            found[files[match[1]]].add(int(match[2]))
        else:
            assert ": note: " in line, line
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted(verdicts, name):
    lines = _program(ACCEPTED[name]).splitlines()
    assert [lines[number - 1] for number in sorted(verdicts[name])] == []


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", REJECTED)
def test_rejected(verdicts, name):
    lines = _program(REJECTED[name]).splitlines()
    assert verdicts[name] == {number for number, line in enumerate(lines, 1) if line.endswith("# error")}

"""How many rejects are allowed: a count, or a share from the 1,000th record on and at the end; what DuckDB may use."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.importer.job import import_file
from headway.importer.limits import RejectLimit


def stop_of_a_loop(limit: RejectLimit, rejects: set[int], records: int) -> int | None:
    """The record that a plain loop may not take any more."""
    found = 0
    for record in range(records):
        bad = record in rejects
        if limit.most is not None and bad and found == limit.most:
            return record
        if limit.share is not None:
            if record == 1000 and found > limit.share * 1000:
                return record
            if record >= 1000 and bad and found + 1 > limit.share * (record + 1):
                return record
        found += bad
    return None


@given(
    rejects=st.sets(st.integers(0, 1299), max_size=40),
    commits=st.lists(st.integers(1, 700), min_size=1, max_size=8),
    limit=st.one_of(
        st.integers(0, 45).map(lambda most: RejectLimit(most=most)),
        st.sampled_from([0.0, 0.005, 0.01, 0.02, 0.03]).map(lambda share: RejectLimit(share=share)),
    ),
)
def test_the_stop_does_not_depend_on_where_commits_are_cut(
    rejects: set[int], commits: list[int], limit: RejectLimit
) -> None:
    base = found = 0
    stop = None
    for records in commits:
        inside = sorted(record - base for record in rejects if base <= record < base + records)
        at = limit.stop(base, found, records, inside)
        if at is not None:
            stop = base + at if base + at < sum(commits) else None
            break
        base, found = base + records, found + len(inside)
    assert stop == stop_of_a_loop(limit, rejects, sum(commits))


def test_a_short_file_is_judged_at_its_end() -> None:
    limit = RejectLimit.parse("1%")
    assert limit.stop(0, 0, 100, [1, 2, 3]) is None
    assert limit.exceeded(100, 2)
    assert not limit.exceeded(100, 1)
    assert not RejectLimit.parse(None).exceeded(1, 1)


@pytest.mark.parametrize("text", ["-1", "x", "101%", "-1%", "%", "1.5"])
def test_what_is_neither_a_count_nor_a_share_is_refused(text: str) -> None:
    with pytest.raises(Exception, match="a count as in 100, or a share"):
        RejectLimit.parse(text)


def test_the_memory_of_duckdb_follows_its_indexes_and_the_environment_goes_before(tmp_path, monkeypatch):
    from headway.io import duckdb as module

    def told() -> float:
        [advice] = [text for text in report.advice if "of memory (memory_limit)" in text]
        return float(advice.split()[3])

    monkeypatch.delenv(module.MEMORY, raising=False)
    monkeypatch.setattr(module, "_BESIDE_INDEXES", 250 << 20)
    monkeypatch.setattr(module, "_INDEX_OF_A_ROW", 1_000)
    monkeypatch.setattr(module, "_STEP", 0)
    source = tmp_path / "a.csv"
    keys = random.Random(5).sample(range(1 << 60), 60_000)
    source.write_text("id,text\n" + "".join(f"{key},{'x' * 30}\n" for key in keys))
    report = import_file(source, tmp_path / "a.duckdb", key="id", workers=1).report
    assert 251 <= told() <= 280  # 60,000 keys at random have an index of some 2 MB
    report = import_file(source, tmp_path / "a.duckdb", job="b", mode="ignore", key="id", workers=1).report
    assert told() >= 300  # of the rows that were there, as if their index were not known
    monkeypatch.setenv(module.MEMORY, "300MB")
    report = import_file(source, tmp_path / "c.duckdb", workers=1).report
    assert told() == 286.1

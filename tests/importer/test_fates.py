"""One fate per source row: the end state is that of a plain loop, whatever conflicts there are."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway import HeadwayError, import_file
from headway.importer.rowfunction import rows
from support.importing import import_in_ranges, query
from support.targets import TARGETS, Targets

MODES = [
    ("append", None), ("fail", "first"), ("ignore", "first"), ("upsert", "last"), ("replace", "first"), ("replace", "last"),
]  # fmt: skip
KEYS = st.integers(0, 6)
OUTPUTS = st.dictionaries(st.sampled_from("abc"), st.lists(KEYS, min_size=1, max_size=2), max_size=3)


@dataclass
class PlainLoop:
    """The meaning, as slowly and plainly as it can be said."""

    modes: dict[str, tuple[str, str | None]]
    before: dict[str, list[int]]
    tables: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    fates: list[str] = field(default_factory=list)

    def run(self, source: list[dict[str, list[int]]]) -> PlainLoop:
        for name, (mode, _) in self.modes.items():
            keys = [] if mode == "replace" else self.before[name]
            self.tables[name] = [(key, -1) for key in keys]
        for seq, outputs in enumerate(source):
            self.fates.append(self._write(seq, outputs))
        return self

    def _write(self, seq: int, outputs: dict[str, list[int]]) -> str:
        if not outputs:
            return "filtered"
        undo = {name: list(table) for name, table in self.tables.items()}
        refused = set()
        for name, keys in outputs.items():
            mode, keep = self.modes[name]
            for key in keys:
                stands = mode != "append" and any(key == other for other, _ in self.tables[name])
                if stands and keep == "last":
                    self.tables[name] = [(k, seq if k == key else v) for k, v in self.tables[name]]
                elif stands:
                    refused.add("skipped" if mode == "ignore" else "duplicate_key")
                else:
                    self.tables[name].append((key, seq))
        if refused:
            self.tables = undo
            return "duplicate_key" if "duplicate_key" in refused else "skipped"
        return "written"


def declared(modes: dict[str, tuple[str, str | None]]) -> dict[str, Any]:
    tables = {}
    for name, (mode, keep) in modes.items():
        tables[name] = {"columns": {"k": "int", "seq": "int"}, "mode": mode}
        if mode != "append":
            tables[name] |= {"key": ["k"], "keep": keep}
    return {"tables": tables}


def spread(row: Any) -> Any:
    outputs = json.loads(row.outputs)
    return rows(**{name: [(key, int(row.seq)) for key in keys] for name, keys in outputs.items()})


def before_rows(row: Any) -> Any:
    return rows(**{row.name: (int(row.k), -1)})


@pytest.mark.parametrize("target_name", TARGETS)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    modes=st.fixed_dictionaries({name: st.sampled_from(MODES) for name in "abc"}),
    before=st.fixed_dictionaries({name: st.lists(KEYS, unique=True, max_size=3) for name in "abc"}),
    source=st.lists(OUTPUTS, max_size=25),
    range_bytes=st.integers(20, 200),
    text_key=st.booleans(),
)
def test_random_conflicts_end_as_the_plain_loop_ends(
    tmp_path_factory: pytest.TempPathFactory,
    targets: Targets,
    target_name: str,
    modes: dict[str, tuple[str, str | None]],
    before: dict[str, list[int]],
    source: list[dict[str, list[int]]],
    range_bytes: int,
    text_key: bool,
) -> None:
    folder = tmp_path_factory.mktemp("fates")
    target, tables = targets.fresh(target_name, folder), declared(modes)
    if text_key:  # no shortcut for ascending numbers
        for table in tables["tables"].values():
            table["columns"]["k"] = "text"
    path = folder / "before.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("name", "k"), *((name, key) for name, keys in before.items() for key in keys)])
    first = {
        "tables": {n: {k: v for k, v in t.items() if k not in ("mode", "keep")} for n, t in tables["tables"].items()}
    }
    import_in_ranges(path, target, first, before_rows, range_bytes=1 << 20)
    query(target, "DELETE FROM _headway_jobs")

    path = folder / "source.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(
            [("seq", "outputs"), *((seq, json.dumps(outputs)) for seq, outputs in enumerate(source))]
        )
    writer = import_in_ranges(path, target, tables, spread, range_bytes=range_bytes)

    loop = PlainLoop(modes, before).run(source)
    for name in modes:
        found = query(target, f"SELECT CAST(k AS INTEGER), seq FROM {name}")
        assert sorted(found) == sorted(loop.tables[name]), name
        if modes[name][0] in ("append", "fail", "ignore") and target_name != "bank.db":
            assert found == loop.tables[name], "file order"
    rejected = query(target, "SELECT seq, reason FROM _headway_rejects ORDER BY seq")
    assert rejected == [(seq, "duplicate_key") for seq, fate in enumerate(loop.fates) if fate == "duplicate_key"]
    counts = writer.counts
    assert (counts.read, counts.written, counts.rejected, counts.skipped, counts.filtered) == (
        len(source), loop.fates.count("written"), loop.fates.count("duplicate_key"), loop.fates.count("skipped"),
        loop.fates.count("filtered"),
    )  # fmt: skip


@pytest.mark.parametrize("target_name", TARGETS)
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    source=st.lists(OUTPUTS, max_size=25),
    range_bytes=st.integers(20, 200),
    most=st.integers(0, 3),
)
def test_a_stop_at_the_limit_leaves_exactly_what_lies_before_and_a_higher_limit_goes_on(
    tmp_path_factory: pytest.TempPathFactory,
    targets: Targets,
    target_name: str,
    source: list[dict[str, list[int]]],
    range_bytes: int,
    most: int,
) -> None:
    folder = tmp_path_factory.mktemp("limit")
    target = targets.fresh(target_name, folder)
    modes = {"a": ("fail", "first"), "b": ("upsert", "last"), "c": ("ignore", "first")}
    path = folder / "source.csv"
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("seq", "outputs"))
        for seq, outputs in enumerate(source):
            out.writerow((seq, json.dumps(outputs)))
            if not seq % 3:
                file.write("\r\n")
    blanks = (len(source) + 2) // 3
    writer = import_in_ranges(path, target, declared(modes), spread, range_bytes=range_bytes, max_rejects=most)
    whole = PlainLoop(modes, {"a": [], "b": [], "c": []}).run(source)
    bad = [seq for seq, fate in enumerate(whole.fates) if fate == "duplicate_key"]
    end = bad[most] if len(bad) > most else len(source)
    loop = PlainLoop(modes, {"a": [], "b": [], "c": []}).run(source[:end])
    for name in modes:
        assert sorted(query(target, f"SELECT k, seq FROM {name}")) == sorted(loop.tables[name])
    counts = writer.counts
    assert counts.rejected == min(most, len(bad))
    assert counts.read == counts.written + counts.rejected + counts.skipped + counts.filtered
    assert counts.read == end + (blanks if end == len(source) else (end + 2) // 3)
    assert (writer.stopped is not None) == (len(bad) > most)
    if writer.stopped is not None:
        line = 2 + end + (end + 2) // 3
        assert (writer.stopped.line, writer.stopped.reason) == (line, "duplicate_key")

    writer = import_in_ranges(path, target, declared(modes), spread, range_bytes=range_bytes + 7)
    for name in modes:
        assert sorted(query(target, f"SELECT k, seq FROM {name}")) == sorted(whole.tables[name])
    assert [seq for (seq,) in query(target, "SELECT seq FROM _headway_rejects ORDER BY seq")] == bad
    assert writer.counts.read == len(source) + blanks


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_row_that_is_overwritten_may_keep_its_unique_values(target: str, tmp_path: Path) -> None:
    columns = {"id": "int", "mail": "text", "tax": "int", "name": "text"}
    unique = {
        "columns": {
            "id": "int",
            "mail": {"type": "text", "unique": True},
            "tax": {"type": "int", "unique": True},
            "name": "text",
        }
    }

    def imported(name: str, *lines: str) -> dict[str, int]:
        (tmp_path / name).write_text("\n".join(["id,mail,tax,name", *lines]) + "\n")
        return dict(import_file(tmp_path / name, target, table="c", key="id", mode="upsert", schema=unique).reasons)

    assert imported("first.csv", "1,a@x,10,Ann", "2,b@x,20,Bob", "3,,,Cy") == {}
    changed = [
        "1,a@x,10,Anna",
        "2,b@x,21,Bobby",
        "3,,,Cyd",
        "2,b@x,21,Bobbie",
        "4,a@x,40,Dee",
        "5,e@x,21,Eve",
        "3,c@x,30,Cyd",
    ]
    assert imported("second.csv", *changed) == {"not_unique": 2}  # Dee has Anna's mail, Eve Bobbie's tax
    assert sorted(query(target, f"SELECT {', '.join(columns)} FROM c")) == [
        (1, "a@x", 10, "Anna"), (2, "b@x", 21, "Bobbie"), (3, "c@x", 30, "Cyd"),
    ]  # fmt: skip


MAILS, TAXES = st.sampled_from([None, "a", "b", "c", "d"]), st.sampled_from([None, 1, 2, 3])
PEOPLE = st.lists(st.tuples(st.integers(1, 4), MAILS, TAXES), min_size=1, max_size=2)
Person = tuple[int, str | None, int | None]


def people(row: Any) -> Any:
    return rows(c=[(key, mail, tax, int(row.seq)) for key, mail, tax in json.loads(row.people)])


def plainly_upserted(source: list[list[Person]]) -> tuple[list[tuple[int, str | None, int | None, int]], list[int]]:
    """Give the table and the rejected rows of a plain loop: a value is free as soon as the row that had it has another."""
    table: dict[int, tuple[str | None, int | None, int]] = {}
    refused = []
    for seq, outputs in enumerate(source):
        after = dict(table)
        for key, mail, tax in outputs:
            others = [other for at, other in after.items() if at != key]
            if any(mail == m is not None or tax == t is not None for m, t, _ in others):
                refused.append(seq)
                break
            after[key] = (mail, tax, seq)
        else:
            table = after
    return sorted((key, *row) for key, row in table.items()), refused


@pytest.mark.parametrize("target_name", TARGETS)
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    source=st.lists(PEOPLE, max_size=20),
    range_bytes=st.integers(20, 400),
    two_runs=st.booleans(),
    key=st.sampled_from(["int", "text"]),
)
def test_unique_values_that_rows_give_up_and_take_end_as_the_plain_loop_ends(
    tmp_path_factory: pytest.TempPathFactory,
    targets: Targets,
    target_name: str,
    source: list[list[Person]],
    range_bytes: int,
    two_runs: bool,
    key: str,
) -> None:
    folder = tmp_path_factory.mktemp("given_up")
    target = targets.fresh(target_name, folder)
    kind = {"int": "BIGINT", "text": "TEXT"}[key]
    query(target, f"CREATE TABLE c (id {kind} PRIMARY KEY, mail TEXT UNIQUE, tax BIGINT UNIQUE, seq BIGINT)")
    columns = {"id": key, "mail": "text", "tax": "int", "seq": "int"}
    tables = {"tables": {"c": {"columns": columns, "key": ["id"], "mode": "upsert"}}}
    lines = [(seq, json.dumps(outputs)) for seq, outputs in enumerate(source)]
    middle = len(lines) // 2 if two_runs else 0
    for name, part in (("first.csv", lines[:middle]), ("second.csv", lines[middle:])):
        with (folder / name).open("w", newline="") as file:
            csv.writer(file).writerows([("seq", "people"), *part])
        import_in_ranges(folder / name, target, tables, people, range_bytes=range_bytes)
        query(target, "DELETE FROM _headway_jobs")
    table, refused = plainly_upserted(source)
    assert sorted((int(at), *row) for at, *row in query(target, "SELECT id, mail, tax, seq FROM c")) == table
    found = query(target, "SELECT raw, reason FROM _headway_rejects ORDER BY seq")
    assert sorted(int(raw.split(",")[0]) for raw, _ in found) == refused
    assert {reason for _, reason in found} <= {"constraint"}


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_a_key_of_two_columns_beside_a_unique_column_of_their_names_joined(target: str, tmp_path: Path) -> None:
    query(target, "CREATE TABLE t (a BIGINT, b BIGINT, a_b BIGINT UNIQUE, PRIMARY KEY (a, b))")
    query(target, "INSERT INTO t VALUES (1, 1, 10), (1, 2, 20)")
    (tmp_path / "t.csv").write_text("a,b,a_b\n1,1,30\n1,2,10\n2,1,20\n2,2,30\n")
    assert import_file(tmp_path / "t.csv", target, key="a,b", mode="upsert").reasons == {"constraint": 1}
    assert query(target, "SELECT * FROM t ORDER BY a, b") == [(1, 1, 30), (1, 2, 10), (2, 1, 20)]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_many_rows_that_a_constraint_refuses_among_known_keys_are_found(target: str, tmp_path: Path) -> None:
    query(target, "CREATE TABLE d (id BIGINT PRIMARY KEY, n BIGINT CHECK (n < 5))")
    known = ", ".join(f"({2 * n}, 0)" for n in range(4_000))
    query(target, f"INSERT INTO d VALUES {known}")
    bad = {n for n in range(8_000) if n % 7 == 3}
    (tmp_path / "d.csv").write_text("id,n\n" + "".join(f"{n},{9 if n in bad else 1}\n" for n in range(8_000)))
    found = import_file(tmp_path / "d.csv", target, key="id", mode="ignore", job="d")
    assert found.reasons == {"constraint": len(bad)}
    assert found.written == sum(n % 2 and n not in bad for n in range(8_000))
    assert query(target, "SELECT count(*), max(n) FROM d") == [(4_000 + found.written, 1)]


@pytest.mark.parametrize("target", TARGETS, indirect=True)
def test_zero_is_one_key_whatever_its_sign(target: str, tmp_path: Path) -> None:
    (tmp_path / "z.csv").write_text("a,v\n0.5,9\n0.0,1\n-0.0,2\n1.0,3\n")
    assert import_file(tmp_path / "z.csv", target, key="a", column={"a": "float"}).reasons == {"duplicate_key": 1}
    assert query(target, "SELECT v FROM z ORDER BY a") == [(1,), (9,), (3,)]


NOWHERE_KNOWN = [
    ("bank.db", ["CREATE TABLE n (id INTEGER, name TEXT)", "CREATE UNIQUE INDEX u ON n (lower(name))"], {2, 4}),
    ("bank.db", ["CREATE TABLE n (id INTEGER, name TEXT COLLATE NOCASE UNIQUE)"], {2, 4}),
    ("bank.db", ["CREATE TABLE n (id INTEGER, name TEXT)", "CREATE UNIQUE INDEX u ON n (name COLLATE NOCASE) WHERE id > 2"], {4}),
    ("bank.duckdb", ["CREATE TABLE n (id BIGINT, name VARCHAR)", "CREATE UNIQUE INDEX u ON n (lower(name))"], {2, 4}),
    (
        "bank.duckdb",
        ["CREATE TABLE p (id BIGINT PRIMARY KEY)", "INSERT INTO p VALUES (1), (3)", "CREATE TABLE n (id BIGINT REFERENCES p (id), name VARCHAR)"],
        {2, 4, 5},
    ),
    ("postgresql", ["CREATE TABLE n (id BIGINT, name TEXT)", "CREATE UNIQUE INDEX u ON n (lower(name))"], {2, 4}),
    ("postgresql", ["CREATE TABLE n (id BIGINT, name TEXT, more TEXT, UNIQUE NULLS NOT DISTINCT (more))"], {2, 3, 4, 5}),
]  # fmt: skip


@pytest.mark.parametrize(("target", "statements", "refused"), NOWHERE_KNOWN, indirect=["target"])
def test_what_the_database_refuses_for_reasons_of_its_own_is_found_row_by_row(
    target: str, statements: list[str], refused: set[int], tmp_path: Path
) -> None:
    for statement in statements:
        query(target, statement)
    (tmp_path / "n.csv").write_text("id,name\n1,a\n2,A\n3,b\n4,B\n5,c\n")
    found = import_file(tmp_path / "n.csv", target, table="n")
    assert found.reasons == {"constraint": len(refused)}
    assert {row[0] for row in query(target, "SELECT id FROM n")} == {1, 2, 3, 4, 5} - refused
    lines = {row[0] for row in query(target, "SELECT line FROM _headway_rejects")}
    assert lines == {number + 1 for number in refused}


def order_and_line(row: Any) -> Any:
    return rows(o=[(row.id, row.n)], l=[(row.id, row.ref)])


@pytest.mark.parametrize("target", TARGETS, indirect=True)
@pytest.mark.parametrize("bad", ["500,500,-1", "500,99999,1"])
def test_a_refused_row_leaves_those_that_refer_to_rows_of_the_same_commit(
    target: str, bad: str, tmp_path: Path
) -> None:
    query(target, "CREATE TABLE o (id BIGINT PRIMARY KEY, n BIGINT CHECK (n > 0))")
    query(target, "CREATE TABLE l (id BIGINT PRIMARY KEY, o BIGINT REFERENCES o (id))")
    lines = [f"{number},{number},1" for number in range(1, 1001)]
    lines[499] = bad
    (tmp_path / "o.csv").write_text("\n".join(["id,ref,n", *lines, ""]))
    tables = {
        "o": {"columns": {"id": "int", "n": "int"}, "key": ["id"]},
        "l": {"columns": {"id": "int", "o": "int"}, "key": ["id"]},
    }
    found = import_file(tmp_path / "o.csv", target, tables={"tables": tables}, process=order_and_line, workers=1)
    assert (found.written, found.reasons) == (999, {"constraint": 1})
    assert query(target, "SELECT line FROM _headway_rejects") == [(501,)]
    assert query(target, "SELECT count(*), sum(o) FROM l") == [(999, 1000 * 1001 // 2 - 500)]


EACH_ROW = [
    ("bank.db", "(id INTEGER PRIMARY KEY, m TEXT, n INTEGER CHECK (n > 0))", "(lower(m))"),
    ("bank.duckdb", "(id BIGINT PRIMARY KEY, m VARCHAR, n BIGINT CHECK (n > 0))", "(lower(m))"),
    ("postgresql", "(id BIGINT PRIMARY KEY, m TEXT, n BIGINT CHECK (n > 0))", "(lower(m))"),
    ("bank.db", "(id INTEGER PRIMARY KEY, m TEXT, n INTEGER CHECK (n > 0))", "(m) WHERE n < 8"),
    ("postgresql", "(id BIGINT PRIMARY KEY, m TEXT, n BIGINT CHECK (n > 0))", "(m) WHERE n < 8"),
]


@pytest.mark.parametrize("range_bytes", [8, 1 << 20])
@pytest.mark.parametrize(("target", "columns", "index"), EACH_ROW, indirect=["target"])
def test_the_database_sees_each_row_also_one_that_is_overwritten(
    target: str, columns: str, index: str, range_bytes: int, tmp_path: Path
) -> None:
    query(target, f"CREATE TABLE t {columns}")
    query(target, f"CREATE UNIQUE INDEX u ON t {index}")
    whole = "lower" in index
    given = [
        "1,a,5",
        "2,b,-1",
        "2,b,5",
        "3,A,5" if whole else "3,a,5",
        "1,c,9",
        "3,a,6",
        "4,c,9",
        "4,b,5",
        "5,d,-1",
        "5,d,1",
    ]
    refused = {1, 3, 6, 7, 8} if whole else {1, 3, 7, 8}
    (tmp_path / "t.csv").write_text("\n".join(["id,m,n", *given, ""]))
    tables = {"tables": {"t": {"columns": {"id": "int", "m": "text", "n": "int"}, "key": ["id"], "mode": "upsert"}}}
    import_in_ranges(tmp_path / "t.csv", target, tables, None, range_bytes=range_bytes)
    assert {seq for (seq,) in query(target, "SELECT seq FROM _headway_rejects")} == refused
    last = {line.split(",")[0]: line for seq, line in enumerate(given) if seq not in refused}
    found = query(target, "SELECT id, m, n FROM t ORDER BY id")
    assert [",".join(map(str, row)) for row in found] == [last[key] for key in sorted(last)]


@pytest.mark.parametrize(
    ("target", "id"),
    [
        ("bank.db", "INTEGER PRIMARY KEY"),
        ("bank.duckdb", "BIGINT PRIMARY KEY DEFAULT nextval('s')"),
        ("postgresql", "BIGSERIAL PRIMARY KEY"),
    ],
    indirect=["target"],
)
def test_a_key_that_the_database_makes_itself_is_none_of_the_rows(target: str, id: str, tmp_path: Path) -> None:
    if target.endswith(".duckdb"):
        query(target, "CREATE SEQUENCE s")
    query(target, f"CREATE TABLE n (id {id}, name TEXT UNIQUE)")
    (tmp_path / "n.csv").write_text("name\na\nb\na\nc\n")
    assert import_file(tmp_path / "n.csv", target, table="n").reasons == {"constraint": 1}
    assert query(target, "SELECT name FROM n ORDER BY id") == [("a",), ("b",), ("c",)]


def test_more_than_can_be_found_by_trials_ends_the_run_and_says_so(tmp_path: Path) -> None:
    target = str(tmp_path / "n.db")
    query(target, "CREATE TABLE n (name TEXT)")
    query(target, "CREATE UNIQUE INDEX u ON n (lower(name))")
    (tmp_path / "n.csv").write_text("name\n" + "".join(f"{'aA'[n % 2]}\n" for n in range(300)))
    with pytest.raises(HeadwayError, match=r"refuses more than 100 rows of one commit .* without that constraint"):
        import_file(tmp_path / "n.csv", target)
    assert query(target, "SELECT count(*) FROM n") == [(0,)]

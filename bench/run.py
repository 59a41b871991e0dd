"""`make bench`: every experiment, or those named: `make bench ARGS="handoff order"`.

Exit status 0, also where a target is missed: a busy machine is no defect. The table says so.
"""

from __future__ import annotations

import sys
from importlib import import_module

from measure import Table, busy, machine

EXPERIMENTS = (
    "handoff",
    "order",
    "staircase",
    "simulation",
    "study",
    "meters",
    "journal",
    "import_job",
    "import_columns",
    "import_batches",
    "import_lookup",
    "import_overhead",
)


def main(names: list[str]) -> int:
    """Run the experiments and print their tables."""
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown:
        print(f"no experiment {', '.join(unknown)}; there are: {', '.join(EXPERIMENTS)}", file=sys.stderr)
        return 2
    print(f"{machine()}. Interleaved; medians. Ratios compare, seconds do not travel.")
    if busy():
        print("The machine is busy with other work: times below are too long, and targets may be missed for it.")
    tables: list[Table] = []
    for name in names or EXPERIMENTS:
        try:
            table: Table = import_module(name).bench()
        except ModuleNotFoundError as missing:
            what = (missing.name or "").partition(".")[0].replace("_", "-")
            print(f"\n{name} needs {what}, of the group `bench`: {sys.executable} -m pip install {what}")
            continue
        table.show()
        tables.append(table)
    judged = sum(len(table.verdicts) for table in tables)
    print(f"\n{judged - sum(table.missed for table in tables)} of {judged} targets met")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))

"""What a consumer has taken is what counts as written, also where a stop comes while it holds a block."""

from __future__ import annotations

import asyncio

import pytest

from headway import Pipeline


@pytest.mark.parametrize("taken", [1, 5, 700])
def test_values_taken_before_and_during_a_cancel_are_those_that_are_written(taken):
    with Pipeline(range(3_000)).map(lambda n: n, workers=2).open() as run:
        values = iter(run)
        got = [next(values) for _ in range(taken)]
        run.cancel()
        run._thread.join()  # it has ended while the consumer holds a block
        got += values
    assert got == list(range(len(got)))
    assert (run.report.items.written, run.report.items.late, run.report.complete) == (len(got), 0, True)


def test_the_same_on_the_caller_s_loop():
    async def main():
        async with Pipeline(range(3_000)).map(lambda n: n, workers=2).open() as run:
            got = []
            async for value in run:
                got.append(value)
                if value == 5:
                    run.cancel()
        return got, run.report

    got, report = asyncio.run(main())
    assert got == list(range(len(got)))
    assert (report.items.written, report.items.late, report.complete) == (len(got), 0, True)

"""The interpreter ends, whatever a run is doing, and says nothing that it does not have to: -X dev -W error."""

from __future__ import annotations

import pytest

from acceptance.scenario import MODES
from acceptance.terminal import Script

COMMON = """
import asyncio, itertools, sys, threading
from headway import Pipeline, RunError, StageError

mode = sys.argv[1]

def work(value):
    note("started", value)
    return value

def bad(value):
    if value == 30:
        raise ValueError("thirty")
    return work(value)

def stages(source, fn=work):
    return Pipeline(source, window=32).map(fn, on=mode, workers=2, queue=4)
"""

ENDINGS = {
    "success": "assert stages(range(50)).collect() == list(range(50))",
    "success into a sink": "assert stages(range(50)).batch(7).to(len).run().items.written == 50",
    "failure": """
try:
    stages(range(100), bad).collect()
except StageError as error:
    assert error.seq == 30
else:
    raise AssertionError
""",
    "dead letters": """
report = Pipeline(range(100), on_error="dead_letter").map(bad, on=mode).run(dead_letters=FOLDER / "letters")
assert report.items.dead == 1
""",
    "drain": """
reached = threading.Event()
run = stages(itertools.count()).to(lambda value: reached.set() if value > 200 else None).start()
assert reached.wait(60)
run.drain()
assert run.wait().state == "drained"
""",
    "cancel": """
reached = threading.Event()
run = stages(itertools.count()).to(lambda value: reached.set() if value > 200 else None).start()
assert reached.wait(60)
run.cancel()
assert run.wait().state == "cancelled"
""",
    "abort": """
reached = threading.Event()
run = stages(itertools.count()).to(lambda value: reached.set() if value > 200 else None).start()
assert reached.wait(60)
run.abort()
try:
    run.wait()
except RunError as error:
    assert "aborted" in str(error)
""",
    "break": """
for value in stages(itertools.count()):
    if value == 100:
        break
""",
    "open and break": """
with stages(itertools.count()).open() as run:
    for value in run:
        if value == 100:
            break
""",
    "async break": """
async def main():
    async with stages(itertools.count()).open() as run:
        async for value in run:
            if value == 100:
                break

asyncio.run(main())
""",
    "bare async break": """
async def main():
    async for value in stages(itertools.count()):
        if value == 100:
            break

asyncio.run(main())
""",
    "cancelled task": """
async def main():
    reached, loop = asyncio.Event(), asyncio.get_running_loop()
    tell = lambda value: loop.call_soon_threadsafe(reached.set) if value == 200 else None
    task = asyncio.create_task(stages(itertools.count()).to(tell).arun())
    await reached.wait()
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    raise AssertionError

asyncio.run(main())
""",
    "never started": "run = stages(range(10)).open()",
    "never iterated": "values = iter(stages(range(10)))",
}

HELD = {
    "a run in the background": """
run = stages(itertools.count()).start()
while run.snapshot().items.written < 100:
    time.sleep(0.001)  # asks for what it waits for; nothing tells of a count
""",
    "a consumer that holds its iterator": """
values = iter(stages(itertools.count()))
assert [next(values) for _ in range(100)] == list(range(100))
""",
    "a run that is open": """
run = stages(itertools.count()).open()
run.__enter__()
values = iter(run)
assert [next(values) for _ in range(100)] == list(range(100))
""",
    "sys.exit in the consumer": """
for value in stages(itertools.count()):
    if value == 100:
        sys.exit(0)
""",
    "a run in a daemon thread": """
done = threading.Event()

def main():
    for value in stages(itertools.count()):
        if value == 100:
            done.set()

threading.Thread(target=main, daemon=True).start()
assert done.wait(60)
""",
}


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("mode", MODES)
def test_every_ending_leaves_standard_error_clean(tmp_path, mode, ending):
    text = COMMON + ENDINGS[ending]
    if mode == "task":
        text = text.replace("def work", "async def work").replace("def bad", "async def bad")
        text = text.replace("return work(value)", "return await work(value)")
    with Script(tmp_path, text, mode) as script:
        assert script.status() == 0, script.errors
        assert script.errors == ""


@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("mode", MODES)
def test_the_interpreter_ends_while_something_of_a_run_is_held(tmp_path, mode, held):
    with Script(tmp_path, COMMON + HELD[held], mode) as script:
        assert script.status() == 0, script.errors
        assert script.errors == ""

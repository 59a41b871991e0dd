"""The options of a stage, and how a function given by the user becomes a stage description."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, Literal, TypedDict

from headway.call import is_async
from headway.core.policy import RateLimit, Retry, seconds, whole
from headway.core.spec import Kind, StageSpec, Step
from headway.errors import PlanError
from headway.machine import cores
from headway.run.worker import Recipe

MOST_TASKS = 256
"""Most tasks of an async stage with ``workers="auto"``."""


class StageOptions(TypedDict, total=False):
    """What every stage takes. See `Pipeline` for what each option means."""

    workers: int | tuple[int, int] | Literal["auto"]
    on: Literal["auto", "task", "thread", "process"] | Executor
    needs: Literal["none", "key", "input"]
    key: str | Callable[[Any], Any] | None
    on_key_failure: Literal["continue", "block_key", "halt"]
    timeout: float | None
    deadline: float | None
    grace: float
    retry: int | Retry | None
    rate: float | RateLimit | None
    hedge: bool
    queue: int | None
    on_error: Literal["raise", "skip", "keep", "dead_letter"] | None
    max_failures: int | float | None
    setup: Callable[[], Any] | None
    setup_timeout: float
    idempotent: bool
    atomic: bool
    name: str | None


OPTIONS = tuple(StageOptions.__annotations__)


def make_stage(
    kind: Kind, fn: Any, options: dict[str, Any], steps: tuple[Step, ...], *, initial: Any = None
) -> StageSpec:
    """The stage for `fn` behind `steps`. Raises PlanError for what the options say wrongly."""
    name = options.pop("name", None) or _name(fn, kind)
    _check_options(name, options)
    sink = kind == "sink" and not callable(fn)
    if sink:
        missing = [method for method in ("open", "write", "commit", "close") if not hasattr(fn, method)]
        if missing:
            raise PlanError(
                f"stage {name!r}: a sink is a function or has the methods open, write, commit and close; "
                f"{type(fn).__name__} lacks {', '.join(missing)}"
            )
        if options.get("workers", 1) != 1:
            raise PlanError(f"stage {name!r}: a Sink object is written by one worker, not {options['workers']}")
        if options.get("setup") is not None:
            raise PlanError(f"stage {name!r}: a Sink object opens itself; setup= goes with a function")
        if options.get("on") == "process":
            raise PlanError(f"stage {name!r}: a Sink object stays in this process; use a function for on='process'")
    elif not callable(fn):
        raise PlanError(f"stage {name!r}: a function is needed, not {type(fn).__name__}")
    if options.get("on", "auto") == "auto":
        asynchronous = is_async(fn.write) if sink else is_async(fn)
        options["on"] = "task" if asynchronous else "thread"
    options |= _workers(name, options.pop("workers", 1), options["on"])
    if options.get("key") is not None and options.get("needs", "none") == "none":
        options["needs"] = "key"
    return StageSpec(kind, fn, unique(name, steps), initial=initial, **options)


def _check_options(name: str, options: dict[str, Any]) -> None:
    """Refuse what no stage takes; numbers given for a `Retry` or `RateLimit` become one."""
    for option, value in options.items():
        if option not in OPTIONS:
            raise PlanError(f"stage {name!r}: there is no option {option}=; there are {', '.join(OPTIONS)}")
        if option == "on" and not isinstance(value, str | Executor):
            raise PlanError(f"stage {name!r}: on= is a kind of worker or an Executor, not {value!r}")
        if option == "on" and value == "ray":
            raise PlanError(f'stage {name!r}: on="ray" is not available in this version')
    retry, rate = options.get("retry"), options.get("rate")
    if retry is not None and not isinstance(retry, Retry):
        if not whole(retry):
            raise PlanError(f"stage {name!r}: retry is a number of calls or a Retry, not {retry!r}")
        options["retry"] = Retry(retry)
    if rate is not None and not isinstance(rate, RateLimit):
        if not seconds(rate):
            raise PlanError(f"stage {name!r}: rate is a number of calls a second or a RateLimit, not {rate!r}")
        options["rate"] = RateLimit(rate)


def _workers(name: str, workers: Any, on: Any) -> dict[str, int]:
    """The number of workers, or the fewest and the most of them."""
    if workers == "auto":
        return {
            "workers": 1,
            "most": {"task": MOST_TASKS, "process": cores()}.get(on, 4 * cores()) if isinstance(on, str) else 1,
        }
    if isinstance(workers, tuple):
        if len(workers) != 2 or not all(map(whole, workers)) or workers[0] > workers[1]:
            raise PlanError(f'stage {name!r}: workers is a number, (fewest, most) or "auto", not {workers!r}')
        return {"workers": workers[0], "most": workers[1] if workers[1] > workers[0] else 0}
    if isinstance(workers, str):
        raise PlanError(f'stage {name!r}: workers is a number, (fewest, most) or "auto", not {workers!r}')
    return {"workers": workers}


def _name(fn: Any, kind: str) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__name__", None) or type(fn).__name__
    return kind if name == "<lambda>" else str(name)


def unique(name: str, steps: tuple[Step, ...]) -> str:
    """`name`, with a number behind it if a stage before has it."""
    taken = {step.name for step in steps if isinstance(step, StageSpec)}
    if name not in taken:
        return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"


def pack_stage(spec: StageSpec, recipe: Recipe) -> dict[str, bytes]:
    """The stage's function as it travels to other processes, by stage name, if it does.

    Raises PlanError for what cannot travel, or does not go with an executor of the user's own.
    """
    if spec.on == "process":
        from headway.run.process import check_recipe

        return {spec.name: check_recipe(recipe)}
    if isinstance(spec.on, Executor):
        from headway.run.executor import check_executor, wants_bytes
        from headway.run.process import check_recipe

        remote = wants_bytes(spec.on)
        check_executor(recipe, remote=remote)
        if remote:
            return {spec.name: check_recipe(recipe)}
    return {}

"""Row functions that take many rows at once, as an Arrow record batch.

::

    @headway.per_batch
    def f(batch):
        batch = headway.reject(batch, pc.less(batch["amount"], 0), "negative")
        return batch.append_column("doubled", pc.multiply(batch["amount"], 2))

The batch has the source's fields and an int64 column ``_seq``, which numbers its rows and which the
result has to keep: a row left out is filtered, one repeated becomes several. What does not belong
here: tables.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

from headway.core.block import DROP
from headway.importer.collect import Unfit
from headway.importer.rowfunction import Reject, Rows
from headway.io.chunk import ArrowColumn

SEQ = "_seq"

_set_aside: ContextVar[dict[int, Reject] | None] = ContextVar("rows set aside", default=None)


def reject(batch: Any, mask: Any, reason: str) -> Any:
    """Set the rows aside for which `mask` is true, and give the others.

    `mask`: as many booleans as the batch has rows, from Arrow or a sequence; null counts as false.
    The rows are set aside also if the result of this is not used. Raises ValueError.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(mask, (pa.Array, pa.ChunkedArray)):
        mask = pa.array(mask, pa.bool_())
    if len(mask) != batch.num_rows:
        raise ValueError(f"the mask has {len(mask)} values for {batch.num_rows} rows")
    if mask.null_count:
        mask = pc.fill_null(mask, fill_value=False)
    noted = _set_aside.get()
    if noted is not None:
        for seq in batch.column(SEQ).filter(mask).to_pylist():
            noted.setdefault(seq, Reject(reason))
    return batch.filter(pc.invert(mask))


class Output(NamedTuple):
    """Rows for one table (None: that of a plain row): the row of the input each came from, and the columns by name."""

    table: str | None
    sources: array[int]
    columns: Mapping[str, Sequence[Any]]


class Answer(NamedTuple):
    """What came of one call: the rows it was about, what was set aside of them and why, and what it gave."""

    seqs: list[int]
    errors: Mapping[int, BaseException]
    outputs: list[Output]


def offer(call: Callable[[Any], Any], sources: Sequence[int], columns: Mapping[str, Any]) -> Iterator[Answer]:
    """Call a batch function on Arrow columns by name, and give what came of it, in order of the rows."""
    import pyarrow as pa

    yield from _offer(call, pa.record_batch([pa.array(sources, pa.int64()), *columns.values()], names=[SEQ, *columns]))


def _offer(call: Callable[[Any], Any], batch: Any) -> Iterator[Answer]:
    noted: dict[int, Reject] = {}
    token = _set_aside.set(noted)
    failed: BaseException | None = None
    outputs: list[Output] = []
    try:
        outputs = list(_outputs(call(batch), batch, noted))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # whatever user code raises becomes a reject of the row that it is about
        failed = error
    finally:
        _set_aside.reset(token)
    seqs = batch.column(SEQ).to_pylist()
    if failed is not None and not isinstance(failed, Unfit) and len(seqs) > 1:
        middle = len(seqs) // 2
        yield from _offer(call, batch.slice(0, middle))
        yield from _offer(call, batch.slice(middle))
        return
    errors: Mapping[int, BaseException] = noted if failed is None else dict.fromkeys(seqs, failed) | noted
    yield Answer(seqs, errors, outputs)


def _outputs(result: Any, given: Any, noted: Mapping[int, Reject]) -> Iterator[Output]:
    import pyarrow as pa

    if result is DROP:
        return
    if result is None:
        raise Unfit("returned None", "return the batch; DROP leaves all its rows out")
    for table, batch in result.items() if isinstance(result, Rows) else ((None, result),):
        if not isinstance(batch, (pa.RecordBatch, pa.Table)):
            raise Unfit("not_a_batch", f"a batch function returns an Arrow record batch, not {type(batch).__name__}")
        if batch.schema.names.count(SEQ) != 1 or batch.schema.field(SEQ).type != pa.int64():
            raise Unfit("no_seq", f"the batch has to keep its int64 column {SEQ}")
        numbers = _whole(batch.column(SEQ))
        if not numbers.null_count and _as_given(numbers, given.column(SEQ), noted):
            sources = array("q", numbers.to_pylist())
        else:
            batch, sources = _in_order(batch, numbers.to_pylist(), given.column(SEQ).to_pylist(), noted)
        names = [name for name in batch.schema.names if name != SEQ]
        yield Output(table, sources, {name: _column(batch.column(name)) for name in names})


def _as_given(numbers: Any, given: Any, noted: Mapping[int, Reject]) -> bool:
    """Whether the numbers of a result's rows ascend, are of those that were given, and none was set aside."""
    import pyarrow as pa
    import pyarrow.compute as pc

    length = len(numbers)
    if length > 1 and not pc.all(pc.less_equal(numbers.slice(0, length - 1), numbers.slice(1))).as_py():
        return False
    if noted and pc.any(pc.is_in(numbers, value_set=pa.array(noted, pa.int64()))).as_py():
        return False
    return bool(pc.all(pc.is_in(numbers, value_set=given)).as_py())


def _in_order(batch: Any, seqs: list[Any], given: list[int], noted: Mapping[int, Reject]) -> tuple[Any, array[int]]:
    """Give a result's rows in order of their numbers, without those that were set aside, and the numbers. Raises Unfit."""
    import pyarrow as pa

    if strange := set(seqs).difference(given):
        raise Unfit("no_seq", f"{SEQ} {min(strange, key=repr)} is no row of the batch that was given")
    kept = [index for index, seq in enumerate(seqs) if seq not in noted]
    kept.sort(key=seqs.__getitem__)  # stable: repeated rows keep their order
    return batch.take(pa.array(kept, pa.int64())), array("q", [seqs[index] for index in kept])


def _whole(given: Any) -> Any:
    """Give a column of a result as one array. Raises what is wrong with it."""
    import pyarrow as pa

    if isinstance(given, pa.ChunkedArray):
        given = pa.concat_arrays(given.chunks) if given.num_chunks else pa.array([], given.type)
    given.validate(full=True)
    return given


def _column(given: Any) -> Sequence[Any]:
    """Give a column of a result. Raises what reading its values raises."""
    import pyarrow as pa
    import pyarrow.compute as pc

    given = _whole(given)
    kinds = pa.types
    if kinds.is_date32(given.type) or given.type == pa.timestamp("us"):
        pc.min_max(given).as_py()
    elif not (given.type in (pa.string(), pa.int64(), pa.bool_()) or kinds.is_decimal128(given.type)):
        return given.to_pylist()  # type: ignore[no-any-return]
    return ArrowColumn(given)

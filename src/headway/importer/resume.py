"""Whether a job may go on from what its target holds: its files and options against those of the runs before.

Files that were finished must be as they were; those behind the last one begun are new input; one that
only grew goes on from its end if that is accepted. What does not belong here: the checkpoint itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.errors import CheckpointError
from headway.importer.bookkeeping import Bookkeeping, SavedJob
from headway.importer.declare import Binding, Declaration, create_missing
from headway.importer.identity import content, differences
from headway.io.content import Seal, begins_as, has_grown
from headway.io.ranges import InputFile, Ranges
from headway.io.target import Target
from headway.io.text_file import TextFile

ANEW = (
    "Nothing was done. To import it as it is now from its beginning, give the job a name of its own (--job NAME), "
    "or forget where it stood (--restart)"
)


def claim(target: Target, books: Bookkeeping, binding: Binding, fingerprint: str, *, restart: bool) -> SavedJob | None:
    """Create what is missing, make the job this run's, and give what was saved of it until then. Raises TableCame."""
    target.begin()
    try:
        create_missing(target, binding)
        saved = books.claim(fingerprint, restart=restart)
        target.commit()
        return saved
    except BaseException:
        target.rollback()
        raise


def check_options(saved: SavedJob, fingerprint: str, job: str, tables: Sequence[str]) -> None:
    """Raise CheckpointError if what was committed so far was made with other options."""
    if found := differences(saved.fingerprint, fingerprint):
        raise CheckpointError(
            f"job {job!r} {_state(saved)} {'; '.join(found)}. Nothing was done. To import the file with the options "
            "as they are now, give the job a name of its own: --job NAME. What the earlier run wrote stays in "
            f"{', '.join(tables)}: choose another --table, or remove what should not be there first"
        )


def check_files(saved: SavedJob, files: Sequence[InputFile], job: str, *, accept_changed: bool) -> None:
    """Raise CheckpointError unless the files up to the one where the job stands are as they were.

    With `accept_changed` that last one may have grown.
    """
    if saved.position is None:
        return
    before = content(saved.fingerprint)
    stood = next(index for index, (name, _) in enumerate(before) if name == saved.position.file)
    names = [file.location.name for file in files]
    for index, (name, seal) in enumerate(before[: stood + 1]):
        if name not in names:
            raise CheckpointError(
                f"job {job!r} {_state(saved)} with {name}, which is not among the sources now. Nothing was done. Name it "
                "again: it is not read twice. Or give the job a name of its own: --job NAME"
            )
        if names[index] != name:
            raise CheckpointError(
                f"job {job!r} {_state(saved)}: {names[index]} now stands before {name}, which was begun already. Nothing "
                "was done. Let new files sort behind it, or import them as a job of their own: --job NAME"
            )
        _check_file(files[index], seal, saved, job, accept_changed=accept_changed and index == stood)


def _check_file(file: InputFile, before: Seal, saved: SavedJob, job: str, *, accept_changed: bool) -> None:
    if file.seal == before:
        return
    name = file.location.name
    if not has_grown(file.location, before):
        raise CheckpointError(
            f"job {job!r} {_state(saved)} with another content of {name}: the file has changed since. {ANEW}"
        )
    assert saved.position is not None
    if name != saved.position.file:
        raise CheckpointError(
            f"job {job!r} {_state(saved)}: {name} has grown, and a later file was begun already. {ANEW}"
        )
    if not accept_changed:
        raise CheckpointError(
            f"job {job!r} {_state(saved)}: {name} has grown from {before.size:,} to {file.seal.size or 0:,} bytes since. "
            "Nothing was done. --accept-changed imports what was added; or give the job a name of its own: --job NAME"
        )


def check_end(saved: SavedJob, ranges: Ranges, books: Bookkeeping, job: str, *, accept_changed: bool) -> bool:
    """Look at what lies behind the position, where `ranges` stand; False if the job was finished and nothing does.

    Raises CheckpointError if a finished input goes on and that was not accepted, or if what was added goes on
    in the middle of the last record.
    """
    finished = saved.finished_at is not None
    file, before = ranges.file, ranges.before(4) if accept_changed else b""
    if not ranges.goes_on():
        return not (finished and ranges.is_last)
    name = file.location.name
    if finished and not accept_changed:  # what is known by its head alone
        raise CheckpointError(
            f"job {job!r} was finished: {name} goes on behind the byte where it ended then. Nothing was done. "
            "--accept-changed imports what was added"
        )
    if before and isinstance(file, TextFile):
        _check_join(file, before, ranges, job, left_open=books.left_open(name))
    return True


def _check_join(file: TextFile, before: bytes, ranges: Ranges, job: str, *, left_open: bool) -> None:
    """Go behind the line break that the last line did not have, if it is what comes first now."""
    last, following = file.text.decode(before)[0][-1:], file.text.decode(ranges.peek(4))[0]
    line_break = "\r\n" if following.startswith("\r\n") else following[:1]
    if last == "\r" and following.startswith("\n"):
        ranges.skip(len(file.text.encoded("\n")))
    elif last not in ("\r", "\n"):
        if line_break in ("\r\n", "\r", "\n"):
            ranges.skip(len(file.text.encoded(line_break)))
        else:
            left_open = True
    if left_open:
        raise CheckpointError(
            f"job {job!r}: what was added to {file.location.name} goes on in the middle of its last record, which was "
            f"imported as it stood. {ANEW}"
        )


def check_unchanged(files: Sequence[InputFile]) -> None:
    """Raise CheckpointError if a file is not what it was when it was opened: rows of both may have been read."""
    for file in files:
        if not begins_as(file.location, file.seal):
            raise CheckpointError(
                f"{file.location.name} was changed while it was read: rows of what it was and of what it is may have "
                "been imported, and the job is not marked as finished. --restart imports the file as it is now from its "
                "beginning; remove what should not be in the tables first"
            )


def check_restart(target: Target, declarations: Sequence[Declaration]) -> None:
    """Raise CheckpointError if rows would come twice: where a table is appended to without a key and holds rows."""
    for declaration in declarations:
        mode, _ = declaration.meaning()
        if mode != "append" or declaration.key or target.describe(declaration.name) is None:
            continue
        if count := target.count(declaration.name):
            raise CheckpointError(
                f"--restart: table {declaration.name} holds {count:,} rows already and has no --key, so rows of an "
                "earlier run would come twice. Nothing was done. Empty the table first, or take --mode replace, or name "
                "a --key"
            )


def _state(saved: SavedJob) -> str:
    return "was finished" if saved.finished_at else "was begun"

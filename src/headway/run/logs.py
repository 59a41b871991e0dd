"""Log records of a child on their way to the handlers of its parent, each once.

The child has no handlers of its own: what its loggers let through goes to the parent, whose loggers, filters and
handlers of the same names decide on it as on a record made there.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headway.run.wire import Pack

Levels = tuple[int, dict[str, int]]
"""What `logging.disable` was given, and the level of each logger that has one (the root's name is empty)."""


def levels() -> Levels:
    """The levels here."""
    root = logging.getLogger()
    named = {name: log.level for name, log in list(root.manager.loggerDict.items()) if isinstance(log, logging.Logger)}
    return root.manager.disable, {"": root.level} | {name: level for name, level in named.items() if level}


def forward(levels: Levels, send: Callable[[bytes], None], about: Callable[[], tuple[str, Any]]) -> None:
    """From here on every record of this process goes to `send`, with the stage and the seq that `about` gives."""
    logging.disable(levels[0])
    for name, level in levels[1].items():
        logging.getLogger(name or None).setLevel(level)
    here, pack = os.getpid(), Pack("argument")
    own = logging.Logger.callHandlers

    def call_handlers(logger: logging.Logger, record: logging.LogRecord) -> None:
        if os.getpid() != here:  # a fork of this process: nobody reads what it would send
            own(logger, record)
        else:
            record.headway_stage, record.headway_seq = about()
            send(packed(record, pack))

    logging.Logger.callHandlers = call_handlers  # type: ignore[method-assign,assignment]


def packed(record: logging.LogRecord, pack: Callable[[Any], bytes]) -> bytes:
    """A record as bytes: what it holds if that can travel, else its text."""
    fields = dict(record.__dict__)
    if record.exc_info:
        fields["exc_text"] = record.exc_text or logging.Formatter().formatException(record.exc_info)
        fields["exc_info"] = None
    plain = {name: value for name, value in fields.items() if type(value) in (str, int, float, bool, type(None))}
    plain["headway_seq"] = fields["headway_seq"]
    plain["args"], full = None, b""
    try:
        plain["msg"] = record.getMessage()
    except Exception as error:
        plain["msg"] = f"{record.msg!r} (its arguments {record.args!r} do not fit: {error})"
    else:
        with suppress(BaseException):
            full = pack(fields)
    return pickle.dumps((plain, full), protocol=pickle.HIGHEST_PROTOCOL)


def deliver(data: bytes) -> None:
    """Hand a record of a child to the handlers here. Their errors are told as `logging` tells its own."""
    fields, full = pickle.loads(data)
    if full:
        with suppress(BaseException):  # else what travels in any case has to be enough
            fields = pickle.loads(full)
    record = logging.makeLogRecord(fields)
    logger = logging.getLogger(record.name)
    if logger.isEnabledFor(record.levelno):
        try:
            logger.handle(record)
        except Exception:
            logging.Handler().handleError(record)

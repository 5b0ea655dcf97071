"""Logging: which messages a process prints, and which rank prints them."""

import logging
import os
import sys

from ptrun.config.readable import readable


def is_main_rank() -> bool:
    """Return whether this is the only process of a run, or the first of its ranks."""
    return "WORLD_SIZE" not in os.environ or os.environ.get("RANK", "0") == "0"


def log_to_stderr() -> None:
    """Print log messages to standard error. Standard output is for results alone."""
    logger = logging.getLogger("ptrun")
    handler = logging.StreamHandler()
    handler.setFormatter(_Visible())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if is_main_rank() else logging.WARNING)
    logger.propagate = False
    # DeepSpeed 0.19 prints this on standard output when a library looks for it.
    logging.getLogger("DeepSpeed").addFilter(
        lambda record: "Setting accelerator to CPU" not in record.getMessage()
    )


def print_error(error: Exception) -> None:
    """Print the message of an error, and which rank it is from if there are several."""
    rank = "" if is_main_rank() else f"rank {os.environ['RANK']}: "
    print(f"ptrun: {rank}{readable(str(error))}", file=sys.stderr)


class _Visible(logging.Formatter):
    """Writes control characters out: a text of a file could move the cursor or hide a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the message of a record."""
        return readable(super().format(record))

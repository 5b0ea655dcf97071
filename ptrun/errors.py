"""Errors that the user can fix, and failures of a valid run."""


class UserError(Exception):
    """A wrong input. It is printed without a traceback; the exit code is 1 and there is no result.

    The message names the value, the allowed values and what to type.
    """


class RunFailed(Exception):
    """Training failed, for example with an infinite loss. The run is recorded as failed."""


class RankLost(Exception):
    """A rank ended too early. Nothing is recorded, and the same command resumes the run."""

"""Errors the user can fix, and failures of a run that was set up well."""


class UserError(Exception):
    """A mistake in what was typed or given: shown without a traceback, exit code 1, no result.

    The message names the value, what is allowed and what to type.
    """


class RunFailed(Exception):
    """Training itself failed (a loss that is not finite): the run is kept, reported as failed."""


class RankLost(Exception):
    """A process of a run ended before its time; nothing is recorded, the same command goes on."""

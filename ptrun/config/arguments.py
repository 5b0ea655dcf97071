"""The parser of commands that have options of their own."""

import argparse
from typing import NoReturn

from ptrun.errors import UserError


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are shown like all others; `prog` is `ptrun COMMAND`."""

    def error(self, message: str) -> NoReturn:
        """Raise what the command line shows."""
        command = self.prog.removeprefix("ptrun ")
        raise UserError(f"{command}: {message}.\n{self.format_usage().strip()}")

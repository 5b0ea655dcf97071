"""Write random weights in the full size of any backbone, to test a machine.

Memory, speed, engines and formats need a model of full size, not a trained one. What trains a small
backbone on your own text is in a checkout of ptrun: `python -m workshop.pretrain --help`.
"""

import inspect
from collections.abc import Sequence

from ptrun.config.arguments import Parser
from ptrun.errors import UserError

EXAMPLES = """\
  ptrun pretrain --random backbone=gpt2 model.n_layer=2 out=FOLDER     a GPT-2 of two layers
  ptrun pretrain --random backbone=t5_xxl_lm_adapt out=FOLDER          11B random weights
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("pretrain", __doc__, EXAMPLES)
    made.overrides("backbone=NAME and the keys below; model.KEY=VALUE goes deeper")
    made.add_argument("--random", action="store_true", help="write random weights, train nothing")
    return made


def main(arguments: Sequence[str]) -> None:
    """Write the folder of one model and print its size.

    Raises:
        UserError: a key or value is wrong, the folder is not empty, or training is asked for.
    """
    made = parser()
    if {"-h", "--help"} & set(arguments):
        from ptrun.pretrain.recipe import Synthetic

        keys = inspect.cleandoc(Synthetic.__doc__ or "").split("Args:\n", 1)[1]
        made.epilog = f"keys:\n{keys}\n\n{made.epilog}"
    given = made.parse(arguments)
    if not given.random:
        typed = " ".join(["python -m workshop.pretrain", *given.overrides])
        raise UserError(f"ptrun pretrain is for --random. To train, type in a checkout: {typed}")
    from ptrun.pretrain.synthetic import main as write_random

    write_random(given.overrides)

"""Continue the training of an encoder-decoder as a language model (LM adaptation).

Lester et al. 2021, section 3.1. Writes a model folder that every run can use, with backbone.path=
and readout.pattern=ppt_lm. The same command resumes an interrupted adaptation.
"""

import inspect
import json
from collections.abc import Sequence

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun adapt corpus=pocket steps=200 out=DIR                    pocket_t5, offline, in minutes
  ptrun adapt backbone=t5_v1_1_base corpus=DIR device=cuda       T5 v1.1 on your own text
"""


def parser() -> Parser:
    """Return the parser of the command line."""
    made = Parser("adapt", __doc__, EXAMPLES)
    made.overrides("backbone=NAME, backbone.path=FOLDER, corpus=DIR, and the keys below")
    return made


def main(arguments: Sequence[str]) -> None:
    """Adapt one backbone and print its metrics.

    Raises:
        UserError: a name, key or value is wrong, or the folder is not empty.
    """
    made = parser()
    if {"-h", "--help"} & set(arguments):
        from ptrun.pretrain.recipe import Adaptation

        keys = inspect.cleandoc(Adaptation.__doc__ or "").split("Args:\n", 1)[1]
        made.epilog = f"keys:\n{keys}\n\n{made.epilog}"
    overrides = made.parse(arguments).overrides
    from ptrun.pretrain.adapting import adapt

    print(json.dumps(adapt(overrides)))

"""Show the data of a run without training: counts, lengths, overlaps, examples.

Checks the configuration, loads data and tokenizer, and encodes every example as the model
would read it. Reads no weights and writes no run folder.
"""

from collections.abc import Sequence

from ptrun.config.arguments import Parser
from ptrun.reporting.formats import show

EXAMPLES = """\
  ptrun check task=csv task.train=reviews.csv task.text=review task.label=stars
  ptrun check method=ptuning task=boolq setting=few_shot_32 data_dir=DIR
"""

PARSER = Parser("check", __doc__, EXAMPLES)
PARSER.overrides("the overrides of the run; see ptrun run --help")


def main(arguments: Sequence[str]) -> None:
    """Print the data of a run."""
    overrides = PARSER.parse(arguments).overrides
    from ptrun.config.compose import compose_run
    from ptrun.exporting.stock_form import afterwards
    from ptrun.planning.preview import preview
    from ptrun.runs.plan import plan

    show(preview(plan(compose_run(overrides)), afterwards))

"""Export a finished run to a folder of PEFT, transformers or vLLM.

The folder has the adapter or the tuned model, the tokenizer and a model card. PEFT and
transformers load it without ptrun; a head that no class of transformers has comes with load.py.
Before it appears, its logits are compared with the run's on the run's own dev examples. A run that
PEFT cannot express is rejected with the reason; ptrun check says so before training.
"""

from collections.abc import Sequence
from pathlib import Path

from ptrun.config.arguments import Parser

EXAMPLES = """\
  ptrun export RUN --to peft DIR                  a new folder
  ptrun export RUN --to transformers DIR          a tuned backbone, or one with LoRA or IA3 merged
  ptrun export RUN --to vllm DIR                  input vectors, and a client that sends them
"""
_MORE = """\
what PEFT can express:
  prompt_tuning    vectors before the text; on T5 with a verbalizer
  residual_prompt  the same; so does multitask_prompt, of a run of one task
  ptuning          the same, if every {soft} of the pattern stands before the text
  ptuning_v2       prefixes in all layers, where the model's class in transformers takes
                   keys and values: causal models, BERT, RoBERTa, ELECTRA and others;
                   not ALBERT, DeBERTa, DistilBERT and encoder-decoders
  cartridge        the same, on causal models
  lora, peft       all families but GLM; not Megatron

KEY=VALUE is as for ptrun predict: hardware.KEY, data_dir=DIR, outputs=DIR, backbone.path=DIR.
"""

PARSER = Parser("export", __doc__, EXAMPLES)
PARSER.epilog = f"{_MORE}\n{PARSER.epilog}"
PARSER.add_argument("run", metavar="RUN", help="a finished run: folder, id or start of an id")
PARSER.overrides("see below")
PARSER.add_argument(
    "--to", nargs=2, required=True, metavar=("KIND", "DIR"), help="peft, transformers or vllm DIR"
)


def main(arguments: Sequence[str]) -> None:
    """Export a run and print one line."""
    args = PARSER.parse(arguments)
    kind, where = args.to
    if kind not in ("peft", "transformers", "vllm"):
        PARSER.error(f"--to {kind}: use --to peft DIR, --to transformers DIR or --to vllm DIR")
    from ptrun.exporting.export import export
    from ptrun.predicting.answering import ready

    dense = ["hardware.precision=fp32", "hardware.quantization=none"]
    run = ready(args.run, [*dense, *args.overrides], "export")
    out = Path(where).expanduser()
    line, _ = export(run, args.overrides, out, kind=kind)
    print(f"{out}: {line}")

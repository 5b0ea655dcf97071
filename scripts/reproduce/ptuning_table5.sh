#!/usr/bin/env bash
# P-tuning, Table 5: SuperGLUE dev after 32 training examples.
#
# Protocol: Steps, rates, lengths and patterns are those of the released scripts. The paper says
# 3500 steps for all. There are two AdamW optimizers: the backbone's with rate 1e-5 and decay
# 0.1, and the prompt encoder's without decay. Linear decay of rates to 0, clip 1, batches of 16.
# Every 20 steps dev32 is evaluated. The last of equal scores is kept (CB, MultiRC: in accuracy
# and F1). Training stops after 10 evaluations without a gain. The kept prompt is scored on the
# dev set. Three repetitions. Patterns have one segment with [SEP] as text, COPA has one margin a
# batch, WSC 0 to 3 extra masks. As in the code, a row has two tokens less than its limit,
# because special tokens are counted twice. P-tuning's long rows lose tokens of the last text
# first: BoolQ of the question. WSC stars the pronoun alone, not the word with its comma. The
# paper does not list PET's patterns; here they are those of PET's own code, trained as P-tuning
# is. Dev32 selects the best one; the mean is over all. The authors say that CB's script does not
# give the printed number, and that few-shot results change with devices and versions.
#
# 14 cells, 3 seeds each. GPU hours: about 20 on one A100, half of it PET's patterns (estimated
# from steps and ALBERT's 12 passes of one large layer; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table5 check=true "$@"
ptrun experiment=ptuning/table5 "$@"
report=(--paper ptuning --table table5)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

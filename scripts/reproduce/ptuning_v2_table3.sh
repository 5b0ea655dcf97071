#!/usr/bin/env bash
# P-tuning v2, Table 3: Named entities, extractive questions and semantic roles; fine-tuning,
# shallow, deep and shared deep prompts.
#
# Protocol: AdamW, rate x 0.95 per epoch, no weight decay, clip 1, fp32. Names and roles: test
# F1 at the best epoch on dev (Brown: on WSJ's dev). Questions: the best epoch on dev, which is
# reported. PT-2 has the rows of the released scripts. Their dropout of .2 is of hidden states,
# prefix and head, as there. The paper prints one number and no deviation; here there are three
# seeds, those of the scripts (11, 14, 44). PT, DeBERTa, and BERT on CoNLL03, CoNLL05 and SQuAD
# have no script. Their epochs, batches and lengths are those of RoBERTa. The rate is searched
# on the only published grid (COPA); on CoNLL03 and CoNLL04 the length is too. FT is not
# described; it has P-tuning's rates and 10 epochs, 3 for questions. MPT-2 is not released. Here
# it has 10 epochs on all sets of a family together, then PT-2's epochs on each, at 5e-3. The
# length is the one the paper recommends (about 100; 16 for questions). The first stage runs
# once for the sets that share it. The paper adds PropBank's release to the data sets of roles;
# multi_srl lacks it. BERT is uncased, as in the scripts for names.
#
# 96 cells, 3 seeds each. GPU hours: about 1200 on one A100 without roles, four fifths of it
# searches (estimated: 4 to 6 operations per parameter and token at a fifth of the peak; not
# measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/table3 check=true "$@"
ptrun experiment=ptuning_v2/table3 "$@"
report=(--paper ptuning_v2 --table table3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

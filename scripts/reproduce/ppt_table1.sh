#!/usr/bin/env bash
# PPT, Table 1: Hard prompts and label words beside a learned prompt, SST-2.
#
# Protocol: As Table 4 (task and data, steps, evaluations); rates are searched on dev. Label
# words are listed as positive/negative. The code puts Man#2's words after the sentence, the
# paper before it; here as in the code. Gen#2 is as printed; the code's has other words before
# the sentence.
#
# 7 cells, 5 seeds each. GPU hours: about 15 on one A100 (as Table 4; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ppt/table1 check=true "$@"
ptrun experiment=ppt/table1 "$@"
report=(--paper ppt --table table1)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

#!/usr/bin/env bash
# P-tuning v2, Figure 3: Depth of prompts, BERT-large on RTE and BoolQ.
#
# Protocol: As Table 2, with the rows of its scripts. The released code has no layer interval.
# Here a layer outside it has no prefix at all.
#
# 20 cells, 3 seeds each. GPU hours: about 30 on one A100 (estimated as in Table 2; not
# measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/figure3 check=true "$@"
ptrun experiment=ptuning_v2/figure3 "$@"
report=(--paper ptuning_v2 --table figure3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

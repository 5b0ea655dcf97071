#!/usr/bin/env bash
# P-tuning v2, Table 4: Deep prompts on RoBERTa-large, a linear head and a verbalizer.
#
# Protocol: As Table 2. RTE and BoolQ have the rows of its scripts. SST-2 and CB have none; they
# are searched on the published grid. The paper prints the words (true, false; neutral for CB),
# but not the patterns; ours end in the mask. Three seeds, those of the scripts (11, 14, 44).
#
# 5 cells, 3 seeds each. GPU hours: about 130 on one A100, nine tenths of it the search on SST-2
# (estimated as in Table 2; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/table4 check=true "$@"
ptrun experiment=ptuning_v2/table4 "$@"
report=(--paper ptuning_v2 --table table4)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

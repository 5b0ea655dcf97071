#!/usr/bin/env bash
# DPT, Table 3: Ablation of the score's direction, ELECTRA-base, 10 % of the data.
#
# Protocol: as Table 1.
#
# 4 cells, 10 seeds each. GPU hours: about 2 on one A100 (4 cells that are not in Table 1, short
# training, AGNews' test after each epoch; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=dpt/table3 check=true "$@"
ptrun experiment=dpt/table3 "$@"
report=(--paper dpt --table table3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

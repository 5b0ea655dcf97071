#!/usr/bin/env bash
# P-tuning, Table 1: Effect of a manual prompt's wording, relation P17 of LAMA.
#
# Protocol: No training. Only a listed word may win. The paper does not name the list; here it
# has 34k words. Nothing is random, so the five seeds agree.
#
# 4 cells, 5 seeds each. GPU hours: minutes on one GPU (estimated: four passes over about 900
# facts; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table1 check=true "$@"
ptrun experiment=ptuning/table1 "$@"
report=(--paper ptuning --table table1)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

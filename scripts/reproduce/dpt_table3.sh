#!/usr/bin/env bash
# DPT, table3: Ablation of the score's direction, ELECTRA-base, 10 % of the data.
#
# How: as Table 1
#
# 4 cells, 10 seeds each. GPU hours: about 2 on one A100 (4 cells of their own, short training,
# AGNews' test after each epoch; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=dpt/table3 check=true "$@"
ptrun experiment=dpt/table3 "$@"
report=(--paper dpt --table table3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

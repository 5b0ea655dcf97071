#!/usr/bin/env bash
# P-tuning v2, figure3: Depth of prompts, BERT-large on RTE and BoolQ.
#
# How: As Table 2, rows of its scripts. The released code has no layer interval; here a layer
# outside has no prefix at all.
#
# 20 cells, 3 seeds each. GPU hours: about 30 on one A100 (an estimate, as Table 2; nothing was
# timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/figure3 check=true "$@"
ptrun experiment=ptuning_v2/figure3 "$@"
report=(--paper ptuning_v2 --table figure3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

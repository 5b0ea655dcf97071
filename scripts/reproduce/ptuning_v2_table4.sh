#!/usr/bin/env bash
# P-tuning v2, table4: Deep prompts on RoBERTa-large, a linear head against a verbalizer.
#
# How: As Table 2, rows of its scripts (RTE, BoolQ); SST-2 and CB have none and are searched on
# the published grid. The words are printed (true, false; neutral for CB), the templates are
# not: ours end in the mask. Three seeds here, those that the scripts have (11, 14, 44).
#
# 5 cells, 3 seeds each. GPU hours: about 130 on one A100, of which SST-2's search is nine
# tenths (an estimate, as Table 2; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/table4 check=true "$@"
ptrun experiment=ptuning_v2/table4 "$@"
report=(--paper ptuning_v2 --table table4)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

#!/usr/bin/env bash
# PPT, Figure 2: Prompt tuning and fine-tuning, full data and few examples, T5-XXL.
#
# Protocol: Full data as in the code's scripts: epochs, evaluations and rates by task. Where
# those give no rate, it is that of 32 examples. Published validation both selects and is
# reported, here also for SST-2, SST-5 and RACE. Batches of 16, for SST-2 of 32.
#
# 14 cells, 5 seeds each. GPU hours: about 450 on A100s, with FT on four, three quarters of it
# RACE-h (3e10 operations per token at 1e14 per second; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ppt/figure2 check=true "$@"
ptrun experiment=ppt/figure2 "$@"
report=(--paper ppt --table figure2)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

#!/usr/bin/env bash
# PPT, figure2: Prompt tuning against fine-tuning, full data and few examples, T5-XXL.
#
# How: Full data as in the code's scripts: epochs, evaluations and rates by task; where those
# name no rate, that of 32 examples. Published validation both selects and is reported, here
# also for SST-2, SST-5 and RACE. Batches of 16, of SST-2 32.
#
# 14 cells, 5 seeds each. GPU hours: about 450 on A100s, FT on four, three quarters of it RACE-h
# (3e10 operations a token at 1e14 a second; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ppt/figure2 check=true "$@"
ptrun experiment=ppt/figure2 "$@"
report=(--paper ppt --table figure2)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

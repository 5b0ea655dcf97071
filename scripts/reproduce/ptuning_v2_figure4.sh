#!/usr/bin/env bash
# P-tuning v2, figure4: Length of prompts and their reparameterization, RoBERTa-large.
#
# How: As Tables 2 and 3, rows of their scripts but for the length; with an MLP the rate of the
# one script that has it (WiC, 1e-4). Names and roles: test F1 at the epoch best on dev.
#
# 34 cells, 3 seeds each. GPU hours: about 50 on one A100 without CoNLL12 (an estimate, as Table
# 2; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/figure4 check=true "$@"
ptrun experiment=ptuning_v2/figure4 "$@"
report=(--paper ptuning_v2 --table figure4)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

#!/usr/bin/env bash
# P-tuning, table6: Four manual prompts and a learned one on RTE, scored on all of dev and on
# the 32 that select.
#
# How: As Table 5 (RTE): manual prompts are tuned on as PET does, 250 steps; P-tuning 3500
# steps, prompt rate 1e-4, 150 steps of warm-up. Both numbers are of the checkpoint that dev32
# selected. The words of the fourth prompt are not stated: true and false here.
#
# 4 cells, 3 seeds each. GPU hours: about 2 on one A100 (an estimate from steps; nothing was
# timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table6 check=true "$@"
ptrun experiment=ptuning/table6 "$@"
report=(--paper ptuning --table table6)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

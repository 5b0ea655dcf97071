#!/usr/bin/env bash
# P-tuning, table2: Knowledge probing, P@1 of frozen backbones with manual, searched and learned
# prompts.
#
# How: A prompt for each of 41 relations, of 9 vectors (6 left to right) from an LSTM; Adam
# 1e-5, L2 decay 5e-4, rate x 0.98 an epoch, batches of 8, at most 100 epochs, the last that is
# best on dev, patience 20; seed 34 in the released code, here with two more for a spread. P@1
# among the words of a list, the mean over relations (how the paper averages is not said).
# Manual prompts learn nothing: their seeds agree.
#
# 20 cells, 3 seeds each. GPU hours: about 60 on one A100 (an estimate from steps, 20 passes a
# second for 8 relations together; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table2 check=true "$@"
ptrun experiment=ptuning/table2 "$@"
report=(paper=ptuning table=table2)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=("$given"); fi
done
ptrun report "${report[@]}"

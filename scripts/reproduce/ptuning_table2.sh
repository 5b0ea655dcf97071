#!/usr/bin/env bash
# P-tuning, table2: Knowledge probing, P@1 of frozen backbones with manual, searched and learned
# prompts.
#
# How: A prompt for each of 41 relations, of 9 vectors (6 left to right) from an LSTM; Adam
# 1e-5, L2 decay 5e-4, rate x 0.98 an epoch, batches of 8, at most 100 epochs, the last that is
# best on dev, patience 20; seed 34 in the released code, here with two more for a spread. P@1
# among the words of a list, the mean over relations (how the paper averages is not said).
# Manual prompts learn nothing: their seeds agree. Left to right the printed cells run as the
# released code does, whose slips are partly what their numbers say: a prompt learns at the
# position before the one that answers, and MP reads after the space that is left where the
# template is cut, Megatron-11B even after the end mark of RoBERTa's tokenizer. `MP sound`,
# which the paper does not print, asks the same without that space and mark. Dropout acts in
# frozen backbones, as there. Left-to-right backbones ran in fp16 there, in bf16 here.
#
# 25 cells, 3 seeds each. GPU hours: about 60 on one A100, about 15 more with Megatron-11B on
# one of 80 GB (an estimate from steps, 20 passes a second for 8 relations together, of
# Megatron-11B 4; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table2 check=true "$@"
ptrun experiment=ptuning/table2 "$@"
report=(--paper ptuning --table table2)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

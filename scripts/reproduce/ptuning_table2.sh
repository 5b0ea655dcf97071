#!/usr/bin/env bash
# P-tuning, Table 2: Knowledge probing, P@1 of frozen backbones with manual, searched and
# learned prompts.
#
# Protocol: Each of 41 relations has a prompt of 9 vectors (6 left to right) from an LSTM. Adam
# 1e-5, L2 decay 5e-4, rate x 0.98 per epoch, batches of 8, patience 20; the last epoch with the
# best dev score is kept. The code evaluates before each of 100 epochs and never keeps the first
# evaluation, so 99 epochs count. The released code has seed 34; here two more give a spread. P@1
# is among the words of a list, and the number is the mean over relations. The paper does not say
# how it averages. Manual prompts learn nothing, so their seeds agree. As in the code, they begin
# with a space, which RoBERTa reads. FT and MP+FT tune one backbone for each relation, at 5e-6.
# Left to right, the printed cells run as the released code does, because its mistakes explain
# part of their numbers. A prompt learns at the position before the answer. MP reads after the
# space that is left where the template is cut; Megatron-11B even reads after the end mark of
# RoBERTa's tokenizer. `MP sound` is not in the paper; it has neither the space nor the mark.
# Dropout is active in frozen backbones, as in the code. Left-to-right backbones run in fp16, as
# there.
#
# 37 cells, 3 seeds each. GPU hours: about 60 on one A100, about 180 more for FT and MP+FT, about
# 15 with Megatron-11B on one of 80 GB (estimated from steps: 20 passes per second for 8
# relations together, 4 for Megatron-11B; 40 epochs of FT a relation at 20, 8 and 3 steps per
# second by size; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table2 check=true "$@"
ptrun experiment=ptuning/table2 "$@"
report=(--paper ptuning --table table2)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

#!/usr/bin/env bash
# DPT, table1: Text classification, fine-tuning against discriminative prompts, full data and 10
# %.
#
# How: AdamW, 2e-5, linear to 0, 10 epochs, clip 1, no decay, for all backbones and methods; the
# best epoch on dev, which is test itself for TREC and AGNews; the mean of the best 3 of 10
# seeds, chosen on test. 10 % of each class, the same for all seeds. Batches are printed as 32
# (base) and 8 (large) "on two GPUs"; taken as totals. The released script, for large, has 8 on
# each of two (train.batch_size=16). RoBERTa's head was not released: it is the usual one, dense
# and tanh, learned anew. DPT reads as the released code does, which the paper does not say:
# reserved tokens that begin as the class words, a learned bias a class. As printed:
# method.pattern=dpt_paper method.class_bias=false method.reserved=false.
#
# 64 cells, 10 seeds each. GPU hours: about 150 on one A100, most of it AGNews at batches of 8
# (150,000 steps, 60 ms assumed; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=dpt/table1 check=true "$@"
ptrun experiment=dpt/table1 "$@"
report=(--paper dpt --table table1)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

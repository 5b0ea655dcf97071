#!/usr/bin/env bash
# P-tuning v2, table2: SuperGLUE, fine-tuning against shallow and deep prompts, from 0.3 to 10
# billion parameters.
#
# How: AdamW, linear to 0, no decay, clip 1, fp32; the best epoch on the dev set that is also
# reported. The released scripts' rows for PT-2; one number printed, no deviation: three seeds
# here, those that the scripts have (11, 14, 44). Without a script (CB, MultiRC, ReCoRD; PT)
# rate and length are searched on the only grid that was published (COPA, RoBERTa; of MultiRC
# and ReCoRD the rate alone, at length 16), epochs and batches are ours. FT is not described:
# P-tuning's rates, batches and epochs. PT embeds the text once (the released code, by mistake,
# twice: method.double_embedding=true). RoBERTa on WSC is the majority class, 63.5, with FT and
# PT-2: no success. GLM answers in a pattern's words, without a head. How the paper trained it
# is not known: its length, rate, epochs, runs and PT. PT-2 here is as GLM's released prompt
# runs (states as prefixes, length 100, rate 1e-2 after a warm-up of 1 %, decay 1e-4, no clip,
# pattern 0, their epochs), which are of November 2021, after the paper's first version, and of
# GLM-RoBERTa-large; none is of ReCoRD (2 epochs, ours), and their seeds were others (1234,
# 5678, 3456). PT has the form that GLM's code has; its length (100) and rates (5e-3, 7e-3, 1e-2
# searched; 1e-2 on MultiRC and ReCoRD) are ours, the rest as PT-2. FT is as GLM's scripts for
# 10B, taken for 2B too. Theirs learns ReCoRD against at most 10 entities, here all; theirs
# makes curly quotes straight.
#
# 96 cells, 3 seeds each. GPU hours: about 350 on one A100 for BERT and RoBERTa, half of it
# ReCoRD's; about 600 for GLM-2B and 3000 for GLM-10B, three fifths of it ReCoRD's, FT of 10B on
# four or more (an estimate, 4 to 6 operations a parameter and token at a fifth of its peak;
# nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/table2 check=true "$@"
ptrun experiment=ptuning_v2/table2 "$@"
report=(--paper ptuning_v2 --table table2)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

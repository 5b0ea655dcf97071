#!/usr/bin/env bash
# PPT, Table 4 (English): English, 32 and 32 examples, fine-tuning by size and prompts.
#
# Protocol: 32 training and 32 dev examples of train, balanced and the same for all seeds. Seeds
# 10 to 50 change only order and initialization. Published validation is reported at the best
# accuracy on dev after 6, 12, ... 96 (here also 100) of 100 steps of 16. AdamW, constant rate,
# weight decay .01 also on prompts, clip 1. Rates are searched on dev in the printed intervals.
# For T5-XXL they are those of the code's scripts. Rates of prompts are for tables stored at
# 1/100 (method.rescale=100). All words of the vocabulary compete. There is no dropout. PPT's T5
# has weights at 1/100 and 1/10 and norms that equal an epsilon of 1e-2. FT learns such weights
# (hardware.fp16_scaling). A pre-trained prompt is that of the last step, as in the scripts.
# Differences here: the 32 examples are our draw. CB's are FewGLUE's, because its train has only
# 16 neutral examples, too few for two balanced halves. PPT left out an incomplete last batch of
# test (SST-2: 864 of 872). LM Adaption is the public 100,000-step model; the paper says 10,000.
#
# 77 cells, 5 seeds each. GPU hours: about 90 on A100s, with FT of T5-XXL on four, and up to 500
# once for the four pre-trained prompts (3e10 operations per token, longest inputs, at 1e14 per
# second; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ppt/table4_en check=true "$@"
ptrun experiment=ppt/table4_en "$@"
report=(--paper ppt --table table4_en)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

#!/usr/bin/env bash
# P-tuning, Table 3: Fully supervised SuperGLUE, base-size backbones, fine-tuning, manual
# patterns and learned prompts.
#
# Protocol: AdamW with linear decay to 0. Dev selects the rate (1e-5, 2e-5 or 3e-5) and the
# batch size (16 or 32). 20 epochs (COPA, WSC, CB, RTE) or 10. The best epoch is chosen on the
# dev set that is reported. No code, seeds or deviations are published; here there are three
# seeds. The paper does not say which pattern each backbone had. Here they are the released
# few-shot patterns, read and trained as that code does on BERT; readout.pattern=ptuning_alt1 and
# so on are others. AVG is over seven tasks; CB and MultiRC each count as the mean of their two
# metrics.
#
# 53 cells, 3 seeds each. GPU hours: about 50 on one A100 (estimated: 6 operations per parameter
# and token at a fifth of its peak; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table3 check=true "$@"
ptrun experiment=ptuning/table3 "$@"
report=(--paper ptuning --table table3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

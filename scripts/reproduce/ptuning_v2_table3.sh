#!/usr/bin/env bash
# P-tuning v2, table3: Named entities, extractive questions and semantic roles, fine-tuning
# against shallow, deep and shared deep prompts.
#
# How: AdamW, rate x 0.95 an epoch, no decay, clip 1, fp32. Names and roles: test F1 at the
# epoch best on dev (Brown: of WSJ's dev); questions: the epoch best on dev, which is reported.
# The released scripts' rows for PT-2; where they say dropout .2 it is of prefixes here, of
# hidden states too there. One number printed, no deviation: three seeds here, those that the
# scripts have (11, 14, 44). Without a script (PT; BERT on CoNLL03, CoNLL05, SQuAD; DeBERTa)
# epochs, batches and lengths are those of RoBERTa's, the rate is searched on the only grid that
# was published (COPA), on CoNLL03 and CoNLL04 the length too. FT is not described: rates of
# P-tuning, 10 epochs, 3 of questions. MPT-2 is not released: here 10 epochs on all sets of a
# family together, then the epochs of PT-2 on each, at 5e-3, with the length that the paper
# advises (about 100; 16 for questions); the first part is learned once for the sets that share
# it. The paper adds PropBank's release to the roles' sets, which multi_srl has not. BERT is
# uncased, as in the scripts for names.
#
# 60 cells, 3 seeds each. GPU hours: about 1200 on one A100 without roles, of which searches are
# four fifths (an estimate, 4 to 6 operations a parameter and token at a fifth of its peak;
# nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning_v2/table3 check=true "$@"
ptrun experiment=ptuning_v2/table3 "$@"
report=(--paper ptuning_v2 --table table3)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

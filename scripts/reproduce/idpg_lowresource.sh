#!/usr/bin/env bash
# IDPG, low-resource table: Instance-dependent prompts and other methods with 100, 500 and 1000
# training examples.
#
# Protocol: As Table 1 with rates 5e-4, 1e-4, 5e-5 and 1e-5, batches of 16 and 313, 1,563 or
# 3,125 steps (50 epochs). All seeds have the same sample. 1,000 other examples select (775 for
# CR at 1,000); the whole dev or test file is reported. Heads have no dropout. Accuracy selects.
# On STS-B the loss is the squared error of score / 5, and the epoch with the lowest is taken.
# The layers' generators read the forward pass over the text without prompts. All methods start
# from the MNLI model. Adapter-tuning is Compacter, fine-tuning is EFL. EFL's descriptions and
# rates are not released, so they are ours. STS-B has no labels, so its EFL cell is fine-tuning
# of the MNLI model. Mean and deviation (n, not n - 1) are over seeds 1 to 5.
#
# 240 cells, 5 seeds each. GPU hours: about 350 on one A100, most of it evaluation in 50 epochs
# (estimated at 15 steps per second and dev after each epoch; not measured).
#
# All arguments go to every run: data_dir=DIR, hardware=gpu, cell=NAME, seeds=1. With
# +scale=pocket, all cells run on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/lowresource check=true "$@"
ptrun experiment=idpg/lowresource "$@"
report=(--paper idpg --table lowresource)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

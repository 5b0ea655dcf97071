#!/usr/bin/env bash
# IDPG, run_log: Accuracy by learning rate of P-tuning v2 (as IDPG has it) and M-IDPG-PHM.
#
# How: as Table 1, one rate at a time, from the MNLI model
#
# 12 cells, 5 seeds each. GPU hours: about 12 on one A100 (an estimate from steps, as Table 1;
# nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=idpg/run_log check=true "$@"
ptrun experiment=idpg/run_log "$@"
report=(--paper idpg --table run_log)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

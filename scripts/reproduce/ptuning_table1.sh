#!/usr/bin/env bash
# P-tuning, table1: How much the wording of a manual prompt matters, relation P17 of LAMA.
#
# How: No training; a listed word alone may win. Which list is not stated: the one of 34k words
# here. One seed, since nothing is drawn.
#
# 4 cells, 1 seeds each. GPU hours: minutes on one GPU (an estimate, four passes over some 900
# facts; nothing was timed).
#
# What is typed after the script goes to every run: data_dir=DIR, hardware=gpu, cell=NAME,
# seeds=1. "+scale=pocket" tries all of it on the pocket world, in minutes on a laptop.

set -euo pipefail

ptrun experiment=ptuning/table1 check=true "$@"
ptrun experiment=ptuning/table1 "$@"
report=(--paper ptuning --table table1)
for given in "$@"; do
  if [[ $given == outputs=* ]]; then report+=(--outputs "${given#outputs=}"); fi
done
ptrun report "${report[@]}"

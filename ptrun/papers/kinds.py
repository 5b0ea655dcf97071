"""The kinds of `ptrun import` for the files of papers; each is an entry point `ptrun.imports`."""

from pathlib import Path

from ptrun.importing.kinds import Checkpoint, Data

_TOKENIZER = {
    "type": Path,
    "metavar": "FROM",
    "help": "folder with GPT-2's tokenizer.json, or vocab.json and merges.txt",
}
_PUBLISHED = "ptrun.papers.published"

CPM2 = Checkpoint(
    "cpm2",
    "ptrun.papers.cpm2:import_cpm2",
    "Megatron shards of CPM-2, or of PPT's T5: mp_rank_*_model_states.pt.",
    "  ptrun import cpm2 SHARDS --out DIR --tokenizer vocab.txt",
    unscale={"action": "store_true", "help": "for PPT's T5 shards: undo the /100"},
    tokenizer={"type": Path, "metavar": "FILE", "help": "CPM-2's vocab.txt"},
)
GLM = Checkpoint(
    "glm",
    "ptrun.papers.glm:import_glm",
    """GLM-2B or GLM-10B.

The source has the authors' mp_rank files, or is a snapshot of the hub: pytorch_model*.bin or
*.safetensors.""",
    "  ptrun import glm SNAPSHOT --out DIR --tokenizer GPT2",
    tokenizer=_TOKENIZER,
)
MEGATRON = Checkpoint(
    "megatron",
    "ptrun.papers.megatron:import_megatron",
    "Megatron-11B of fairseq: dict.txt and model-model_part-*.pt.",
    "  ptrun import megatron MEGATRON --out DIR --tokenizer GPT2",
    tokenizer=_TOKENIZER,
)
LAMA = Data(
    "lama",
    f"{_PUBLISHED}:lama",
    """LAMA, as P-tuning's authors publish it: task=lama.

The source has relations.jsonl, 29k-vocab.json, 34k-vocab.json and
fact-retrieval/original/P*/{train,dev,test}.jsonl. OptiPrompt's LPAQA_relations.jsonl and
AutoPrompt_relations.jsonl are read too if you put them there.""",
    "  ptrun import lama P-tune_LAMA --out DIR",
)
GLUE = Data(
    "glue",
    f"{_PUBLISHED}:glue",
    """GLUE: task=glue_rte, glue_qqp, ...

The source has <Task>/{train,dev,test}.tsv: CoLA, SST-2, MRPC, STS-B, QQP, MNLI, QNLI, RTE. Hidden
test labels are left out.""",
    "  ptrun import glue GLUE --out DIR",
)
SUPERGLUE = Data(
    "superglue",
    f"{_PUBLISHED}:superglue",
    """SuperGLUE, <Task>/{train,val}.jsonl: task=boolq, cb, copa, ...

Hidden test labels are left out.""",
    "  ptrun import superglue SuperGLUE --out DIR",
)
FEWGLUE = Data(
    "fewglue",
    f"{_PUBLISHED}:fewglue",
    "FewGLUE, <Task>/{train,dev32,val}.jsonl of P-tuning's FewGLUE_32dev: setting=fewglue.",
    "  ptrun import fewglue FewGLUE_32dev --out DIR",
)
SQUAD = Data(
    "squad",
    f"{_PUBLISHED}:squad",
    "SQuAD's JSON, train-v1.1.json and dev-v1.1.json, or -v2.0: task=squad, squad_v2.",
    "  ptrun import squad SQuAD --out DIR",
    accepts="file or folder",
)

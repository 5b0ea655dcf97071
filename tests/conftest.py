"""Fixtures all tests share: tiny random backbones on disk, small tasks, and an offline world."""

import atexit
import os
import shutil
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault(
    "OMP_WAIT_POLICY", "PASSIVE"
)  # before torch: see ptrun/hardware/environment.py
os.environ.setdefault("OMP_NUM_THREADS", "1")  # tiny tensors: a second thread only waits
os.environ.setdefault("DS_ACCELERATOR", "cpu")  # else deepspeed tells it on standard output
os.environ.pop("PTRUN_DATA", None)
os.environ.pop("PTRUN_CONFIG_DIR", None)
os.environ["PTRUN_TRUST"] = "1"  # a test of what is not trusted sets it to 0
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp()  # the user's own list of folders stays as it is

import json
import logging
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch

os.environ.setdefault("TRITON_INTERPRET", str(int(not torch.cuda.is_available())))  # before triton
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from ptrun.backbone import weights
from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.backbone.registry import family_of
from ptrun.config.components import _ALLOW_BIN
from ptrun.config.trust import TRUST
from tests import parts
from tests.families import FAMILIES, PaperBackbone

collect_ignore = parts.needing()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    return (yield from parts.skipping())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    return (yield from parts.skipping())


atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)

WORDS = ["the", "a", "film", "plot", "was", "is", "not", "good", "bad", "dull", "bright", "in"]
WORDS += ["of", "and", "Ann", "Bob", "Oslo", "Rome", "met", "saw"]
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
}


def wordpiece_tokenizer() -> Tokenizer:
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,"
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *letters]
    vocab += [f"##{letter}" for letter in letters]
    ids = {word: index for index, word in enumerate(dict.fromkeys(vocab))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[("[CLS]", ids["[CLS]"]), ("[SEP]", ids["[SEP]"])],
    )
    return tokenizer


SPECIAL = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]"}
SPECIAL |= {"sep_token": "[SEP]", "mask_token": "[MASK]"}


def write_tokenizer(
    folder: Path, tokenizer: Tokenizer, special: dict[str, str], name="PreTrainedTokenizerFast"
) -> None:
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": name, **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def byte_tokenizer() -> Tokenizer:
    vocab = [
        "<s>",
        "<pad>",
        "</s>",
        "<unk>",
        "<mask>",
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
    ]
    ids = {word: index for index, word in enumerate(vocab)}
    tokenizer = Tokenizer(models.BPE(ids, [], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


ROBERTA = {"type_vocab_size": 1, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
DISENTANGLED = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}
T5_SIZES = {"d_model": 32, "d_kv": 12, "d_ff": 48, "num_layers": 3, "num_decoder_layers": 2}
T5_SIZES |= {"num_heads": 2, "feed_forward_proj": "gated-gelu", "decoder_start_token_id": 0}
GPT2_SIZES = {"n_embd": 32, "n_layer": 3, "n_head": 2, "n_positions": 64}
EXTRA = {
    "electra": {"embedding_size": 12},
    "roberta": ROBERTA,
    "albert": {"embedding_size": 12},
    "deberta": {**DISENTANGLED, "max_relative_positions": 16, "position_biased_input": False},
    "deberta-v2": {**DISENTANGLED, "position_buckets": 8, "norm_rel_ebd": "layer_norm"}
    | {"share_att_key": True, "conv_kernel_size": 3, "conv_act": "gelu"},
    "gpt2": GPT2_SIZES,
    "blocklm": GPT2_SIZES | {"n_positions": 65, "decoder_start_token_id": 261},
    "megatron": {"d_model": 32, "num_layers": 3, "attention_heads": 2, "ffn_dim": 48}
    | {"max_position_embeddings": 64},
    "llama": {"num_key_value_heads": 1},
}
CLASSES = {
    "bert": "BertForPreTraining",
    "roberta": "RobertaForMaskedLM",
    "electra": "ElectraForPreTraining",
    "albert": "AlbertForMaskedLM",
    "deberta": "DebertaForMaskedLM",
    "deberta-v2": "DebertaV2ForMaskedLM",
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
}
BYTE_LEVEL = ("roberta", "gpt2", "deberta", "blocklm", "megatron")
OWN_SIZES = ("gpt2", "blocklm", "megatron")


def write_tiny(folder: Path, kind: str) -> Path:
    """Write a tiny random model of a kind, with its tokenizer, as a hub folder looks."""
    import transformers

    if kind in ("blocklm", "megatron") and kind not in FAMILIES:
        pytest.skip("part: papers")
    tokenizer = byte_tokenizer() if kind in BYTE_LEVEL else wordpiece_tokenizer()
    if kind == "blocklm":  # after 5 and 256 others
        tokenizer.add_special_tokens(["<|startofpiece|>", "<|endofpiece|>"])
    sizes = T5_SIZES if kind in ("t5", "mt5") else {} if kind in OWN_SIZES else SIZES
    extra = {"vocab_size": tokenizer.get_vocab_size(), **sizes, **EXTRA.get(kind, {})}
    family = family_of(kind, {"model_type": kind}, FAMILIES)
    config = family.library_config(extra)
    torch.manual_seed(7)
    own = kind not in CLASSES
    model = (family.model_class if own else getattr(transformers, CLASSES[kind]))(config)
    if kind in ("t5", "mt5"):  # v1.1: an output matrix of its own
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.clone())
        config.scale_decoder_outputs = False
    std = 0.1 if kind in ("t5", "mt5") else 0.2  # their attention is not scaled down
    for name, parameter in model.named_parameters():  # no zero biases, no equal norms
        norm = parameter.dim() == 1 and name.endswith("weight")
        parameter.data.normal_(mean=1.0 if norm else 0.0, std=std)
    model.save_pretrained(folder)
    special = SPECIAL
    if kind in BYTE_LEVEL:
        special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
        special |= {"unk_token": "<unk>", "cls_token": "<s>", "sep_token": "</s>"}
        special |= {} if kind == "gpt2" else {"mask_token": "<mask>"}
    names = {"roberta": "RobertaTokenizerFast"}
    write_tokenizer(folder, tokenizer, special, names.get(kind, "PreTrainedTokenizerFast"))
    return folder


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = write_tiny(tmp_path_factory.mktemp(f"tiny_{kind}"), kind)
        return made[kind]

    return folder


@pytest.fixture(scope="session")
def tiny(tiny_folder: Callable[[str], Path]) -> Callable[..., PretrainedBackbone]:
    """Load a tiny backbone: `tiny("roberta")`; its files are read once."""
    read, models = weights.read, {}

    def load(kind: str = "bert") -> PretrainedBackbone:
        def copied(*given: Any) -> tuple[Any, Any]:
            if kind not in models:
                models[kind] = read(*given)
            return deepcopy(models[kind])

        backbone = PaperBackbone(name=f"tiny_{kind}", path=str(tiny_folder(kind)), dtype="fp32")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(weights, "read", copied)
            backbone.load()
        return backbone

    return load


@pytest.fixture(autouse=True)
def same_logging():
    """Undo what the command line does to our logger, where a test calls it in this process."""
    logger = logging.getLogger("ptrun")
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], logger.level, logger.propagate = before


@pytest.fixture(autouse=True)
def no_permission():
    """Take back what a test allowed in this process: `allow_bin=true` holds for all of it."""
    yield
    os.environ.pop(_ALLOW_BIN, None)
    os.environ[TRUST] = "1"


def write_data(root: Path) -> Path:
    """Write six rows of each task that has local data in the tests, in its splits.

    Dev lacks the last one: a dev that equals test is refused.
    """
    for file in (Path(__file__).parent / "data").glob("*.jsonl"):
        folder = root / file.stem
        folder.mkdir(parents=True)
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        for split, own in (("train", lines), ("validation", lines[:-1]), ("test", lines)):
            (folder / f"{split}.jsonl").write_text("".join(own))
    return root


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Return a folder of the tasks' rows that a test may change."""
    return write_data(tmp_path / "data")


@pytest.fixture(scope="session")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the tasks' rows that tests read and leave as it is."""
    return write_data(tmp_path_factory.mktemp("rows") / "data")


@pytest.fixture(scope="session")
def warm():
    """Return what starts processes without the seconds of importing torch."""
    from tests.cli.warm import Warm

    server = Warm()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real data and models, or skip."""
    root = Path(os.environ.get("PTRUN_SHARED", Path(__file__).parents[2] / "shared"))
    if not (root / "data").is_dir():
        pytest.skip("shared data: no folder; set PTRUN_SHARED")
    return root


@pytest.fixture(autouse=True)
def lengths_are_those_of_masks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check in every test what a method says of its rows: on a GPU the mask is not looked at."""
    from ptrun.backbone import family

    packing_of = family.packing_of

    def checked(mask: torch.Tensor, lengths: list[int] | None, *given: object, **more: object):
        if lengths is not None and not mask.is_meta:
            ends = torch.arange(1, mask.shape[1] + 1)
            assert list(lengths) == (mask * ends).amax(dim=1).clamp(min=1).tolist()
        return packing_of(mask, lengths, *given, **more)

    monkeypatch.setattr(family, "packing_of", checked)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count what was skipped: a reason begins with its kind and a colon."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [one.longrepr[2].removeprefix("Skipped: ") for one in skipped]
    kinds = Counter(reason.partition(":")[0] for reason in reasons)
    for kind, count in kinds.most_common():
        terminalreporter.write_line(f"{count} skipped: {kind}")

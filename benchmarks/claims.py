"""The papers' claims as rows to run; `learning.py` runs them."""

from dataclasses import dataclass

FIVE = "1,2,3,4,5"


@dataclass(frozen=True)
class Claim:
    """A paper's claim about some rows: each is better than the first.

    `needs` names a folder of --models that replaces the backbone in `common`. `first` is a
    prerequisite run; its folder replaces {first} in the rows.
    """

    name: str
    says: str
    common: tuple[str, ...]
    rows: dict[str, tuple[str, ...]]
    needs: str = ""
    seeds: str = "1,2,3"
    first: tuple[str, ...] = ()


def methods(prompt: str, deep: str) -> dict[str, tuple[str, ...]]:
    """Return prompt tuning and P-tuning v2 with their overrides, and fine-tuning."""
    return {
        "PT": ("method=prompt_tuning", *prompt.split()),
        "P-tuning v2": ("method=ptuning_v2", *deep.split()),
        "FT": ("method=fine_tuning",),
    }


SHORT = ("train.max_steps=120", "train.batch_size=8", "train.eval_every=40")
LAYERS = ("method=ptuning_v2",)
FACTS = {
    "manual": ("method=manual_prompt",),
    "P-tuning": ("method=ptuning", "train.epochs=20", "train.batch_size=8"),
}
# mini_electra_weak is mini_electra with a generator that sees half the words. In the folder of
# the models: python -m workshop.pretrain backbone=pocket_electra generator=mini_bert
# corpus=corpus_en_large unseen=0.5 steps=1600 vocabulary=8192 model.embedding_size=256
# model.hidden_size=256 model.intermediate_size=1024 model.max_position_embeddings=512
# answer_length=0 rate=5e-4 out=mini_electra_weak
REAL = {"SST-2": "sst2", "SST-5": "sst5", "TREC": "trec", "AG News, 638 texts": "ag_news"}


def dpt(name: str, task: str, model: str = "", rate: str = "5e-4") -> Claim:
    """Return DPT's main claim and its ablation on 10 % of a task, or on the small AG News."""
    share = "full" if task == "ag_news" else "low_resource"
    common = (f"task={task}", f"setting={share}", f"train.lr={rate}", "train.batch_size=16")
    rows = {"FT": ("method=fine_tuning",)}
    if task != "ag_news":  # its test split is large
        rows["DPT(sigma)"] = ("method=dpt", "readout.direction=sigma")
    rows["DPT"] = ("method=dpt",)
    return Claim(
        f"10 %, {name}" + (f", {model}" if model else ""),
        "DPT T1, T3: FT <= DPT(sigma) < DPT",
        (*common, f"backbone={'electra_base' if model else 'pocket_electra'}", "train.epochs=10"),
        rows,
        model,
        FIVE,
    )


def texts(count: int, setting: str, epochs: int) -> Claim:
    """Return FT and DPT on topics with so many texts a class, a point of a curve."""
    return Claim(
        f"topics, {count} texts a class",
        "DPT T1: FT < DPT",
        (
            *("task=pocket_topics", "backbone=pocket_electra", "train.lr=5e-4"),
            *("train.batch_size=16", f"train.epochs={epochs}", *setting.split()),
        ),
        {"FT": ("method=fine_tuning",), "DPT": ("method=dpt",)},
    )


SHARE = "setting=low_resource setting.share="
CURVE = (  # 80 to 380 steps; the best epoch on dev is reported
    texts(10, f"{SHARE}0.05", 10),
    texts(53, f"{SHARE}0.25", 5),
    texts(107, f"{SHARE}0.5", 3),
    texts(214, "setting=full", 2),
)
IDPG = {
    "PT": ("method=idpg_prompt_tuning",),
    "P-tuning v2, additive": ("method=idpg_ptuning_v2",),
    "S-IDPG": ("method=idpg_s",),
    "M-IDPG": ("method=idpg",),
}
SHOTS = ("setting=few_shot_32", "backbone=pocket_t5", "method.length=20")
STEPS = ("pretraining.train.max_steps=200", "pretraining.train.batch_size=32")
LETTERS = (  # at the paper's rate the prompt stops answering with a letter
    "pretraining.train.max_steps=600",
    "pretraining.train.batch_size=32",
    "pretraining.train.lr=2e-2",
    "pretraining.train.schedule=constant",
)
LABELLED = (*STEPS, "pretraining.task.source.labeller=run:{first}")


def ppt(task: str, first: tuple[str, ...], pretraining: tuple[str, ...]) -> Claim:
    """Return PPT's claim at 32 shots, with its hybrid and unified forms."""
    return Claim(
        f"32 shots, {task.removeprefix('pocket_')}",
        "PPT T4: PT < PPT, with less spread",
        (f"task={task}", *SHOTS),
        {
            "PT": ("method=pt_vanilla",),
            "PPT": ("method=ppt", *pretraining),
            "Hybrid PT": ("method=pt_hybrid",),
            "Hybrid PPT": ("method=ppt_hybrid", *pretraining),
            "PT (MC)": ("method=pt_mc",),
            "Unified PPT": ("method=ppt_unified", *LETTERS),
        },
        seeds=FIVE,
        first=first,
    )


CLAIMS = (
    Claim("facts", "P-tuning T2: manual < P-tuning", ("task=pocket_facts",), FACTS, seeds=FIVE),
    Claim(
        "facts, GPT-2",
        "P-tuning T2: manual < P-tuning",
        ("task=pocket_facts", "backbone=pocket_gpt2"),
        FACTS,
        seeds=FIVE,
    ),
    Claim(
        "NER",
        "P-tuning v2 T3: PT < P-tuning v2 <= FT",
        ("task=pocket_ner",),
        methods("", ""),
        seeds=FIVE,
    ),
    Claim(
        "QA",
        "P-tuning v2 T3: PT < P-tuning v2 <= FT",
        ("task=pocket_qa", "train.epochs=6"),
        methods("", ""),
    ),
    Claim(
        "depth, NER",
        "P-tuning v2 F3: bottom <= top layers",
        ("task=pocket_ner",),
        {
            "layers 1-2": (*LAYERS, "method.layers=[1,2]"),
            "layers 3-4": (*LAYERS, "method.layers=[3,4]"),
        },
        seeds=FIVE,
    ),
    Claim(
        "depth, sentiment",
        "P-tuning v2 F3: bottom <= top layers",
        ("task=pocket_sentiment",),
        {
            "layers 1-2": (*LAYERS, "method.layers=[1,2]"),
            "layers 3-4": (*LAYERS, "method.layers=[3,4]"),
        },
        seeds=FIVE,
    ),
    Claim(
        "CoNLL03, mini_bert",
        "P-tuning v2 T3: PT < P-tuning v2 <= FT",
        ("task=conll03", "train.max_steps=400", "train.eval_every=400"),
        methods("train.lr=3e-2", "train.lr=3e-2"),
        "mini_bert",
    ),
    Claim(
        "LAMA, 5 relations, mini_bert",
        "P-tuning T2: manual < P-tuning",
        ("task=lama", "task.vocabulary=objects", "task.relations=[P17,P19,P27,P36,P103]"),
        {
            "manual": ("method=manual_prompt",),
            "LPAQA": ("method=manual_prompt", "readout.pattern=lpaqa"),
            "P-tuning": ("method=ptuning", "train.lr=5e-3", *SHORT),
        },
        "mini_bert",
    ),
    *(dpt(name, task, "mini_electra") for name, task in REAL.items()),
    *(dpt(name, REAL[name], "mini_electra_weak") for name in ("SST-2", "TREC")),
    dpt("sentiment", "pocket_sentiment", rate="2e-4"),
    dpt("topics", "pocket_topics"),
    *CURVE,
    ppt(
        "pocket_sentiment",
        ("task=pocket_sentiment", "method=fine_tuning", "train.max_steps=200"),
        LABELLED,
    ),
    Claim(
        "instances, sentiment",
        "IDPG T1: PT < P-tuning v2, S-IDPG < M-IDPG",
        ("task=pocket_sentiment", "train.epochs=5"),
        IDPG,
        seeds=FIVE,
    ),
    Claim(
        "instances, Subj 1,000, mini_bert",
        "IDPG T1: PT < P-tuning v2, S-IDPG < M-IDPG",
        ("task=subj", "setting=k_1000", "train.epochs=5", "train.batch_size=16"),
        IDPG,
        "mini_bert",
        FIVE,
    ),
)

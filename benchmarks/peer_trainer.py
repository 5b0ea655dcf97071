"""Training runs with HF Trainer and PEFT, as a user would write them, for other benchmarks.

`peers.trained` starts a process that reads a case from a file. It tokenizes once. For each of
`runs` (a seed and a learning rate) it loads a model with a classification head, or one that writes
texts (`loss_on`), trains with dynamic padding, evaluates and saves four times, and scores dev with
the best weights. It prints a JSON object for each run. Rows are read in the order of the file,
which is ptrun's order.
"""

import json
import resource
import sys
import time
from pathlib import Path

import datasets
import numpy as np
import peft
import torch
import transformers
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

MAPS = {"SEQ_CLS": ["query", "value"], "CAUSAL_LM": ["q_proj", "v_proj"]}
CONFIGS = {
    "prefix": lambda n, kind: peft.PrefixTuningConfig(num_virtual_tokens=n, task_type=kind),
    "prompt": lambda n, kind: peft.PromptTuningConfig(num_virtual_tokens=n, task_type=kind),
    "lora": lambda _, kind: peft.LoraConfig(r=8, target_modules=MAPS[kind], task_type=kind),
}


class Clock(TrainerCallback):
    """Adds up the seconds of training steps, without evaluation and data loading."""

    def __init__(self):
        self.seconds, self.first, self.began = [], 0.0, 0.0

    def on_step_begin(self, *_, **__):
        """Start the clock."""
        self.began = time.perf_counter()

    def on_step_end(self, *_, **__):
        """Stop the clock."""
        self.seconds.append(time.perf_counter() - self.began)
        self.first = self.first or time.time()


class InOrder(Trainer):
    """Reads the training rows in the order of the file."""

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


def accuracy(evaluated):
    """Return the accuracy of predictions."""
    logits = evaluated.predictions
    logits = logits[0] if isinstance(logits, tuple) else logits
    return {"accuracy": float((np.argmax(logits, -1) == evaluated.label_ids).mean())}


def main() -> None:
    """Do the runs, and print what was measured."""
    case = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(case["threads"])
    datasets.disable_progress_bars()
    transformers.logging.set_verbosity_error()
    tokenizer = AutoTokenizer.from_pretrained(case["model"])

    def rows(name):
        table = datasets.load_dataset("json", data_files=case[name], split="train")
        if case["loss_on"]:
            both = lambda row: answered(tokenizer, row, case["loss_on"])  # noqa: E731
            return table.map(both, remove_columns=table.column_names)
        return table.map(
            lambda r: tokenizer(r["text"], truncation=True, max_length=256), batched=True
        )

    train, dev = rows("train"), rows("dev")
    for run in case["runs"]:
        print(json.dumps(trained(case, run, tokenizer, train, dev)), flush=True)


def answered(tokenizer, row, loss_on) -> dict:
    """Return the tokens of a prompt and its answer, and the labels of those that are learned."""
    prompt = tokenizer(row["prompt"]).input_ids
    ids = [*prompt, *tokenizer(" " + row["answer"]).input_ids, tokenizer.eos_token_id]
    hidden = 0 if loss_on == "all" else len(prompt)
    return {
        "input_ids": ids,
        "attention_mask": [1] * len(ids),
        "labels": [-100] * hidden + ids[hidden:],
    }


def trained(case, run, tokenizer, train, dev) -> dict:
    """Do one run and return what was measured."""
    transformers.set_seed(run["seed"])
    on_gpu = case.get("device") == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    kind = "CAUSAL_LM" if case["loss_on"] else "SEQ_CLS"
    if case["loss_on"]:
        model = AutoModelForCausalLM.from_pretrained(case["model"], dtype=torch.float32)
    else:
        model = AutoModelForSequenceClassification.from_pretrained(
            case["model"], num_labels=2, dtype=torch.float32
        )
    if case["method"] in CONFIGS:
        model = peft.get_peft_model(model, CONFIGS[case["method"]](case["length"], kind))
    every, clock = case["eval_every"], Clock()
    collator = DataCollatorForSeq2Seq if case["loss_on"] else DataCollatorWithPadding
    options = TrainingArguments(
        case["out"],
        per_device_train_batch_size=case["batch"],
        per_device_eval_batch_size=case["batch"] if case["loss_on"] else 32,
        max_steps=case["steps"],
        learning_rate=run["lr"],
        seed=run["seed"],
        bf16=case["precision"] == "bf16",
        use_cpu=not on_gpu,
        eval_strategy="steps",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=1,
        load_best_model_at_end=True,
        metric_for_best_model="loss" if case["loss_on"] else "accuracy",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    trainer = InOrder(
        model=model,
        args=options,
        train_dataset=train,
        eval_dataset=dev,
        processing_class=tokenizer,
        data_collator=collator(tokenizer),
        compute_metrics=None if case["loss_on"] else accuracy,
        callbacks=[clock],
    )
    trainer.train()
    score = trainer.evaluate().get("eval_accuracy")
    count = case["batch"] * case["steps"]
    lengths = [len(ids) for ids in train["input_ids"]]
    tokens = sum(lengths[index % len(lengths)] for index in range(count))
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 2**10
    peak = torch.cuda.max_memory_allocated() if on_gpu else own
    return {
        "first_step_at": clock.first,
        "tokens_per_second": tokens / sum(clock.seconds),
        "peak_mib": peak / 2**20,
        "accuracy": score and 100 * score,
    }

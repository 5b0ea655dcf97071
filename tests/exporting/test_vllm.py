"""The client of an exported prompt gives a server the run's own rows, and gets its answers."""

import base64
import io
import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import torch
import transformers

import ptrun
from ptrun.config.compose import compose_run
from ptrun.errors import UserError
from ptrun.exporting import vllm
from ptrun.exporting.export import export
from ptrun.predicting.answering import ready
from ptrun.runs.launch import launch

GPT = ["backbone=pocket_gpt2", "train.max_steps=6"]
LABELS = ["task=pocket_sentiment", "readout=verbalizer", "setting=few_shot_32"]
TEXTS = ["task=pocket_writing", "setting=few_shot_32", "readout.max_new_tokens=12"]
SOFT = "+task.pvps.soft.pattern='{soft:4} {~facts} {mask}'"
GROUP = "+task.pvps.group.pattern='{~facts}[[ {facts}]] {mask}'"
FILES = {"README.md", "client.py", "prompt.safetensors", "tokenizer.json", "tokenizer_config.json"}
FILES |= {"chat_client.py", "prompt.pt", "prompt.jinja"}
SAMPLING = {"temperature", "max_tokens", "stop", "stop_token_ids", "repetition_penalty"}
SAMPLING |= {"allowed_token_ids"}
PLACE = "<prompt_embeds>"


def finished(outputs, *typed):
    done = launch(compose_run([*GPT, *typed, f"outputs={outputs}"]))
    return ready(str(outputs / "runs" / done.run_id), ["hardware.precision=fp32"])


def tensor_of(data, hidden):
    """Return what vLLM's documents ask for: base64 of `torch.save` of [tokens, hidden] floats."""
    held = io.BytesIO(base64.b64decode(data, validate=True))
    vectors = torch.load(held, weights_only=True)
    assert vectors.dim() == 2 and vectors.shape[1] == hidden and vectors.is_floating_point()
    return vectors


class Engine(HTTPServer):
    """A server that reads what vLLM documents, and answers with stock transformers.

    Completions have `prompt_embeds` alone. A chat has parts of type `prompt_embeds`, with `data`,
    in the content of a turn; the template writes a token at its place, and vectors go there.
    """

    def __init__(self, folder, out):
        super().__init__(("127.0.0.1", 0), Asked)
        self.model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32
        ).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.tokenizer.add_tokens(PLACE, special_tokens=True)
        self.template = (out / "prompt.jinja").read_text()
        self.words, self.seen = self.model.get_input_embeddings(), []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def embeds(self, path, body):
        hidden = self.words.embedding_dim
        if path == "/v1/completions":
            assert body.keys() <= {"model", "prompt_embeds", *SAMPLING}
            return tensor_of(body["prompt_embeds"], hidden)
        assert path == "/v1/chat/completions"
        assert body.keys() <= {"model", "messages", "chat_template_kwargs", *SAMPLING}
        first, *rest = body["messages"]
        (part,) = first["content"]
        assert part.keys() == {"type", "data"} and part["type"] == "prompt_embeds"
        assert all(turn.keys() == {"role", "content"} for turn in body["messages"])
        vectors = tensor_of(part["data"], hidden)
        text = self.tokenizer.apply_chat_template(
            [{**first, "content": PLACE}, *rest], chat_template=self.template, tokenize=False,
            add_generation_prompt=True,
        )  # fmt: skip
        tokens = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        at = tokens.index(self.tokenizer.convert_tokens_to_ids(PLACE))
        before, after = (
            self.words(torch.tensor(t, dtype=torch.long)) for t in (tokens[:at], tokens[at + 1 :])
        )
        return torch.cat([before, vectors, after])

    @torch.no_grad()
    def text(self, path, body):
        embeds = self.embeds(path, body)[None]
        self.seen.append(tuple(embeds.shape))
        ends = body.get("stop_token_ids") or None
        options = {"max_new_tokens": body["max_tokens"], "eos_token_id": ends}
        if allowed := body.get("allowed_token_ids"):
            options["prefix_allowed_tokens_fn"] = lambda *_: allowed
        mask = torch.ones(embeds.shape[:2], dtype=torch.long)
        written = self.model.generate(
            inputs_embeds=embeds, attention_mask=mask, do_sample=False, pad_token_id=0, **options
        )
        return self.tokenizer.decode(written[0], skip_special_tokens=True)


class Asked(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = self.server.text(self.path, body)
        chat = {"message": {"role": "assistant", "content": text}}
        choice = chat if "chat" in self.path else {"text": text}
        answer = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        """Print nothing."""


CLIENT = "import sys; sys.modules |= dict.fromkeys(sys.argv[3].split()); import runpy, json; "
CLIENT += "rows = json.loads(sys.argv[1]); own = runpy.run_path(sys.argv[2]); "
CLIENT += "print(json.dumps([own['answer'](row) for row in rows]))"
MISSING = {
    "client.py": "ptrun",
    "chat_client.py": "ptrun torch transformers tokenizers safetensors huggingface_hub numpy",
}


def asked(folder, engine, rows, client):
    address = f"http://127.0.0.1:{engine.server_address[1]}"
    line = [sys.executable, "-c", CLIENT, json.dumps(rows), client, MISSING[client]]
    told = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, env={**os.environ, "SERVER": address}
    )
    assert told.returncode == 0, told.stderr
    return json.loads(told.stdout)


@pytest.mark.parametrize(
    "typed",
    [
        ["method=prompt_tuning", "method.length=5", *LABELS],
        pytest.param(["method=prompt_tuning", "method.length=5", *TEXTS], marks=pytest.mark.slow),
        pytest.param(
            ["method=ptuning", *TEXTS, SOFT, "readout.pattern=soft"], marks=pytest.mark.slow
        ),
    ],
)
def test_a_server_that_reads_embeddings_answers_as_the_run(tmp_path, typed):
    run = finished(tmp_path / "outputs", *typed)
    line, gap = export(run, [], tmp_path / "out", kind="vllm")
    assert {file.name for file in (tmp_path / "out").iterdir()} == FILES
    assert gap.equal and gap.examples == 32
    assert line.endswith("32 of 32 (chat_client.py: 32 of 32)")
    (method,) = run.load().values()
    fields = method.readout.pattern.fields
    rows = [{name: own.fields[name] for name in fields} for own in method.task.load("dev")[:6]]
    wanted = [own["prediction"] for own in ptrun.load(run.folder).predict(rows)]
    engine = Engine(run.backbone.folder, tmp_path / "out")
    try:
        for client in MISSING:
            assert asked(tmp_path / "out", engine, rows, client) == wanted
    finally:
        engine.shutdown()
        engine.server_close()
    assert len(engine.seen) == 12 and engine.seen[:6] == engine.seen[6:]
    assert len(set(engine.seen)) > 1
    card = (tmp_path / "out" / "README.md").read_text()
    assert "32 of 32" in card and "not tried against vLLM" in card
    first, second = (line for line in card.splitlines() if line.startswith("vllm serve "))
    assert first.endswith("--enable-prompt-embeds")
    assert "--enable-prompt-embeds --no-enable-prefix-caching" in second


@pytest.mark.parametrize(
    ("typed", "reason"),
    [
        (
            ["method=ptuning", *TEXTS, "readout.pattern=told_soft"],
            "its vectors stand among words",
        ),
        (
            ["method=prompt_tuning", *TEXTS, GROUP, "readout.pattern=group"],
            r"its pattern leaves \[\[ ]] out of some rows",
        ),
        (["method=lora", *LABELS], "this run needs other tensors. Type --to peft DIR"),
        (["method=prompt_tuning", "task=pocket_sentiment"], "this run has a head"),
        (
            ["method=prompt_tuning", "backbone=pocket_bert", *LABELS],
            "vLLM completes texts, and pocket_bert is no causal model",
        ),
    ],
)
@pytest.mark.slow
def test_a_run_that_vllm_cannot_serve_is_refused(tmp_path, typed, reason):
    run = finished(tmp_path / "outputs", "train.max_steps=1", *typed)
    with pytest.raises(UserError, match=reason.replace("(", r"\(")):
        export(run, [], tmp_path / "out", kind="vllm")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_client_that_spells_otherwise_is_refused(tmp_path, monkeypatch):
    run = finished(tmp_path / "outputs", "method=prompt_tuning", *LABELS)
    monkeypatch.setattr(vllm, "_tokens", lambda _: "TOKENIZER(row['sentence'] + '!')['input_ids']")
    with pytest.raises(UserError, match="cannot spell"):
        export(run, [], tmp_path / "out", kind="vllm")
    assert not (tmp_path / "out").exists()

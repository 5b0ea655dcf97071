"""What a server answers to the recorded requests of clients, and the table of it in the docs.

`python -m tests.serve.clients` asks a server and writes down what has changed, in the recordings
(`answer`: of a run on conversations; `plain`: of one that reads a text, where it differs) and in
docs/howto/serve.md.
"""

import json
import re
import shutil
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
from safetensors.torch import load_file, save_file

import ptrun
from tests.serve.conftest import serving

FILE = Path(__file__).with_name("client_calls.json")
CALLS = json.loads(FILE.read_text(encoding="utf-8"))
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "serve.md"
MARKED = re.compile(r"(?<=<!-- clients -->\n).*?(?=<!-- /clients -->)", re.DOTALL)
NOT_TRIED = ("OpenAI for Node, Go and Java", "Vercel's AI SDK")
POCKET = Path(ptrun.__file__).parent / "pocket" / "models" / "pocket_gpt2"
TEMPLATE = Path(__file__).parents[1] / "readout" / "templates" / "qwen25.jinja"
_TEXTS = ("/v1/chat/completions", "/v1/completions")
_SHOWN = 60  # letters of a refusal


@contextmanager
def talking(place):
    """Yield the address of a server with the id of a run on conversations, and of one on texts.

    Its backbone is pocket_gpt2 with four times the positions, and reads tools as Qwen 2.5.
    """
    model, config = place / "M", json.loads((POCKET / "config.json").read_text())
    shutil.copytree(POCKET, model)
    (model / "config.json").write_text(json.dumps({**config, "n_positions": 1024}))
    weights = load_file(model / "model.safetensors")
    (name,) = [name for name in weights if name.endswith("wpe.weight")]
    save_file(
        {**weights, name: weights[name].repeat(4, 1)}, model / "model.safetensors", {"format": "pt"}
    )
    (place / "tools.jinja").write_text(TEMPLATE.read_text().replace("im_end", "endoftext"))
    asked = [{"question": f"{n} and 1", "sum": f"{n + 1}"} for n in range(24)]
    talks = [
        [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["sum"]}]
        for row in asked
    ]
    files = {"texts": asked, "talks": [{"messages": talk} for talk in talks]}
    for name, rows in files.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = [
        f"backbone.path={model}",
        "method=lora",
        "task=csv",
        "train.max_steps=2",
        f"outputs={place}",
    ]
    common += ["readout.max_new_tokens=40"]
    plain = ptrun.run(
        *common, f"task.train={place / 'texts.jsonl'}", "task.text=question", "task.answer=sum"
    )
    chat = ptrun.run(
        *common, f"task.train={place / 'talks.jsonl'}", "task.messages=messages",
        f"readout.chat_template=@{place / 'tools.jinja'}",
    )  # fmt: skip
    with serving(chat.folder.parent) as (address, *_):
        yield address, chat.id, plain.id


def kind_of(call):
    """Return what a request is for: a column of the table."""
    body = call["body"] or {}
    if call["path"].startswith("/v1/models"):
        return "models"
    if call["path"] not in _TEXTS:
        return "other routes"
    turns = body.get("messages", ())
    if {"tools", "functions"} & body.keys() or any("tool_calls" in turn for turn in turns):
        return "tools"
    if (body.get("response_format") or {}).get("type", "text") != "text":
        return "JSON"
    return "streams" if body.get("stream") else "texts"


def outcome(address, run, call):
    """Return `works`, or the status and the beginning of the answer."""

    def named(text):
        return text.replace("DIGITS", run[-8:]).replace("RUN", run)

    body = json.loads(named(json.dumps(call["body"])))
    url = address + named(call["path"])
    found = httpx.request(call["method"], url, json=body, timeout=300)
    if found.status_code != 200:
        said = found.json()["error"]["message"].replace(run, "RUN")
        return f"{found.status_code} {said[:_SHOWN]}"
    if body and body.get("stream"):
        *pieces, last = (line[6:] for line in found.text.splitlines() if line)
        assert last == "[DONE]", found.text
        return _checked(call, [json.loads(piece) for piece in pieces])
    return _checked(call, [found.json()])


def _checked(call, pieces):
    """Return `works` if an answer has what was asked for."""
    choices = [choice for piece in pieces for choice in piece.get("choices", ())]
    turns = [choice.get("message") or choice.get("delta") or {} for choice in choices]
    ends = {choice["finish_reason"] for choice in choices} - {None}
    assert not any("error" in piece for piece in pieces), pieces
    asked = call["body"] or {}
    if asked.get("tool_choice") not in (None, "auto", "none") and ends != {"length"}:
        assert any(turn.get("tool_calls") for turn in turns), pieces
    if kind_of(call) == "JSON" and ends == {"stop"}:
        json.loads("".join(turn.get("content") or "" for turn in turns))
    if (asked.get("stream_options") or {}).get("include_usage"):
        assert pieces[-1]["usage"]["total_tokens"] > 0
    return "works"


def answered(address, chat, plain):
    """Return the recordings with what a server says to each, for two runs."""

    def told(call):
        rest = {key: value for key, value in call.items() if key not in ("answer", "plain")}
        answer, other = (outcome(address, run, call) for run in (chat, plain))
        return {**rest, "answer": answer, **({"plain": other} if other != answer else {})}

    with ThreadPoolExecutor(16) as pool:
        return list(pool.map(told, CALLS["calls"]))


def table(calls):
    """Return the page's part about clients."""
    kinds = ("texts", "streams", "JSON", "tools", "models", "other routes")
    asked, works, refused = Counter(), Counter(), {}
    versions = {}
    for call in calls:
        for client in (call["client"], *call.get("also", ())):
            name, _, version = client.partition(" ")
            versions.setdefault(name, {})[version] = None
            asked[name, kind_of(call)] += 1
            works[name, kind_of(call)] += call["answer"] == "works"
        if call["answer"] != "works":
            refused.setdefault(call["answer"], []).append(call["what"])
    lines = [f"| client | {' | '.join(kinds)} |", f"| --- |{' --- |' * len(kinds)}"]
    for name, own in versions.items():
        cells = [
            f"{works[name, kind]} of {asked[name, kind]}" if asked[name, kind] else ""
            for kind in kinds
        ]
        lines.append(f"| {name} {', '.join(own)} | {' | '.join(cells)} |")
    lines += [f"| {client} | {'not tried | ' * len(kinds)}".rstrip() for client in NOT_TRIED]
    lines += ["", "| refused | the answer begins |", "| --- | --- |"]
    for answer, whats in sorted(refused.items()):
        lines.append(f"| {'; '.join(dict.fromkeys(whats))} | `{answer}` |")
    return "\n".join(lines) + "\n"


def written(calls):
    """Return the recordings as the file has them, one a line."""
    lines = ",\n".join(json.dumps(call) for call in calls)
    return f'{{"note": {json.dumps(CALLS["note"])},\n"calls": [\n{lines}\n]}}\n'


def main():
    """Write down what a server answers."""
    with tempfile.TemporaryDirectory() as place, talking(Path(place)) as (address, chat, plain):
        calls = answered(address, chat, plain)
    FILE.write_text(written(calls), encoding="utf-8")
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(MARKED.sub(lambda _: table(calls), page), encoding="utf-8")


if __name__ == "__main__":
    main()

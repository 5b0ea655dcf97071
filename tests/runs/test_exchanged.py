"""Files and folders that were exchanged between runs, and a chat template that changed."""

import json
import runpy
import shutil
from pathlib import Path

import pytest

import ptrun
from ptrun.config.compose import compose_run
from ptrun.config.writing import value_text
from ptrun.errors import UserError
from ptrun.exporting.export import export
from ptrun.folder import result
from ptrun.folder.find import find
from ptrun.predicting.answering import ready
from ptrun.runs.plan import plan
from ptrun.task.conversation import Conversation

SHIPPED = Path(ptrun.__file__).parent / "pocket" / "models" / "pocket_gpt2"
TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|endoftext|>{% endfor %}"
    "{% if add_generation_prompt %}[assistant] {% endif %}"
)
ASKED = {"role": "user", "content": "3 and 4"}
WRITTEN = {"method": "lora", "task": "csv", "train.max_steps": 1, "readout.max_new_tokens": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a model M, rows, and two finished runs of two seeds."""
    made = tmp_path_factory.mktemp("exchanged")
    shutil.copytree(SHIPPED, made / "M")
    (made / "M" / "chat_template.jinja").write_text(TEMPLATE)
    turns = [
        [{**ASKED, "content": f"{n} and 4"}, {"role": "assistant", "content": str(n + 4)}]
        for n in range(24)
    ]
    (made / "chat.jsonl").write_text("".join(json.dumps({"messages": t}) + "\n" for t in turns))
    for seed in (1, 2):
        trained(made, seed=seed)
    return made


@pytest.fixture
def world(folder, tmp_path):
    return Path(shutil.copytree(folder, tmp_path / "world"))


def options(world, **more):
    files = {"backbone.path": "M", "outputs": "outputs", "task.train": "chat.jsonl"}
    places = {key: str(world / name) for key, name in files.items()}
    return {**WRITTEN, **places, "task.messages": "messages", **more}


def trained(world, **more):
    return ptrun.run(**options(world, **more))


def run_id(world, **more):
    typed = options(world, **more).items()
    return plan(compose_run([f"{key}={value_text(key, value)}" for key, value in typed])).run_id


def runs(world):
    return sorted((world / "outputs" / "runs").iterdir())


def swap(first, second):
    aside = first.with_name("aside")
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def answer(world, folder):
    run = ptrun.load(folder, **{"backbone.path": str(world / "M")})
    return run.predict([{"messages": [ASKED]}])


def test_another_template_is_another_run_and_answers_nothing(world):
    before = run_id(world)
    assert answer(world, runs(world)[0])
    (world / "M" / "chat_template.jinja").write_text(TEMPLATE.replace("[", "<"))
    assert run_id(world) != before
    with pytest.raises(UserError, match=r"trained with the chat template .*and that of"):
        answer(world, runs(world)[0])


def test_a_template_that_is_stored_elsewhere_is_the_same(world):
    digest = result.read(runs(world)[0]).manifest["template"]
    file = world / "M" / "tokenizer_config.json"
    (world / "M" / "chat_template.jinja").unlink()
    file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": TEMPLATE}))
    again = trained(world)  # its backbone has another fingerprint: the file is a part of it
    assert again.result.manifest["template"] == digest == again.result.config["template"]


def test_a_template_of_ones_own_is_a_part_of_the_run(world, tmp_path):
    file = tmp_path / "own.jinja"
    file.write_text(TEMPLATE.replace("[", "<"))
    typed = {"readout.chat_template": f"@{file}", "method": "prompt_tuning"}
    run = trained(world, **typed)
    card = tmp_path / "peft" / "README.md"
    moved = file.rename(tmp_path / "moved.jinja")
    assert run_id(world, **{**typed, "readout.chat_template": f"@{moved}"}) == run.id
    moved.write_text("other {{ messages }}")
    assert run_id(world, **{**typed, "readout.chat_template": f"@{moved}"}) != run.id
    (world / "M" / "chat_template.jinja").unlink()
    ready_run = ready(str(run.folder), [f"backbone.path={world / 'M'}"])
    answers = ptrun.load(run.folder, **{"backbone.path": str(world / "M")})
    assert answers.predict([{"messages": [ASKED]}])
    export(ready_run, [], card.parent)
    assert "form of `chat_template.jinja`" in card.read_text()
    line, gap = export(ready_run, [], tmp_path / "out", kind="vllm")
    every = f"{gap.examples} of {gap.examples}"
    assert line.endswith(f"{every} (chat_client.py: {every})")
    assert (tmp_path / "out" / "chat_template.jinja").read_text() == TEMPLATE.replace("[", "<")
    client = runpy.run_path(str(tmp_path / "out" / "client.py"))
    (method,) = ready_run.load().values()
    (row,) = method.readout.chat.rows([Conversation([ASKED])])
    for more in ({}, {"tools": None}, {"chat_template_kwargs": {"tools": [], "formal": 1}}):
        assert client["tokens"]({"messages": [ASKED], **more}) == row.prompt


def test_a_date_is_a_part_of_a_run_whose_template_asks_for_it(world):
    dated = "{{ strftime_now('%Y') }}" + TEMPLATE
    (world / "M" / "chat_template.jinja").write_text(dated)
    first, second = run_id(world), run_id(world, **{"readout.date": "2031-01-01"})
    assert first != second
    assert trained(world).result.manifest["template"].endswith(" 2026-01-01")


def test_a_template_is_no_part_of_other_runs(world):
    rows = world / "rows.csv"
    rows.write_text("q,a\n" + "".join(f"{n} and 1,{n}\n" for n in range(24)))
    others = {"task.train": str(rows), "task.messages": None, "task.text": "q", "task.answer": "a"}
    before = run_id(world, **others)
    (world / "M" / "chat_template.jinja").write_text("other")
    assert run_id(world, **others) == before


def test_a_prompt_of_another_run_is_refused(world):
    first, second = (own / "prompt.safetensors" for own in runs(world))
    swap(first, second)
    for own in runs(world):
        with pytest.raises(UserError, match=r"safetensors: damaged or edited, or of another"):
            answer(world, own)
        with pytest.raises(UserError, match=r"of another run"):
            _ = ptrun.load(own).prompt
    with pytest.raises(UserError, match=r"of another run"):
        trained(world, start=f"run:{runs(world)[0]}", seed=3)


def test_a_folder_that_is_found_by_its_name_holds_that_run(world, caplog, monkeypatch):
    first, second = runs(world)
    swap(first, second)
    told = rf"{first.name}: holds the run {second.name}, not the one that its name says"
    for ask in (
        lambda: find(first.name, "predict", world / "outputs"),
        lambda: find(first.name[-8:], "predict", world / "outputs"),
        lambda: trained(world, start=f"run:{first.name}", seed=3),
        lambda: trained(world),
    ):
        with pytest.raises(UserError, match=told):
            ask()
    found, damaged = result.read_all(world / "outputs")
    assert not found and len(damaged) == 2
    assert ready(str(first), [f"backbone.path={world / 'M'}"]).done.run_id == second.name
    assert f"{first} holds the run {second.name}" in caplog.text

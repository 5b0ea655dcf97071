"""The page of `ptrun serve`, and what it is told of runs; in Chromium, if that is installed."""

import hashlib
import re
from base64 import b64encode

import httpx
import pytest

import ptrun
from ptrun.serve import serving as routes
from tests.docs.test_site import PHONE
from tests.predicting.test_together import rows_of
from tests.serve.browser import Browser
from tests.serve.clients import talking
from tests.serve.conftest import ROWS, serving

KEY = "a-secret-of-many-letters"
PAGE = routes._PAGE
KINDS = ("ner", "srl", "words", "qa", "choice", "similarity")
TEXT = "Stella Barden visits Frank Venn ."


def test_the_page_is_for_browsers_and_its_policy_allows_its_own_script_alone(server):
    page = httpx.get(server, headers={"Accept": "text/html,*/*;q=0.8"})
    assert page.status_code == 200 and page.text == PAGE
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for tag in ("style", "script"):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag}>", PAGE, re.DOTALL)
        digest = b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy
    assert not re.search(r"\s(?:style|on\w+)=\"|innerHTML|insertAdjacent|https?:|storage", PAGE)
    told = httpx.get(server)
    assert told.status_code == 406 and "/v1/classify" in told.json()["error"]["message"]


def test_models_say_what_runs_read_and_answer(server, runs):
    offers = {m["id"]: m["ptrun"] for m in httpx.get(f"{server}/v1/models").json()["data"]}
    for name, reads, answer in (
        ("labels", "sentence", "label"), ("topics", "text", "labels"), ("lora", "facts", "text"),
    ):  # fmt: skip
        offer, done = offers[runs[name].id], runs[name]
        assert (offer["fields"], offer["answer"]) == ({reads: "text"}, answer)
        assert offer["score"] == pytest.approx(done.metrics["test"][offer["metric"]])
        assert offer["task"] == done.result.names["task"] and offer["part"] == "test"
    assert offers[runs["labels"].id]["labels"] == ["negative", "positive"]
    assert offers[runs["labels"].id]["thresholds"] is None
    limits, row = offers[runs["topics"].id]["thresholds"], rows_of(runs["topics"])[0]
    (line,) = runs["topics"].predict([{"text": row["text"]}], probabilities=True)
    above = [label for label, share in line["probabilities"].items() if share > limits[label]]
    assert above == line["prediction"]


def test_a_damaged_run_is_listed_without_its_task(copied, runs, caplog):
    (copied / runs["topics"].id / "prompt.safetensors").write_bytes(b"x")
    with serving(copied) as (address, *_):
        models = httpx.get(f"{address}/v1/models").json()["data"]
    assert [m["id"] for m in models if "ptrun" not in m] == [runs["topics"].id]
    assert caplog.text.count("is not listed with its task") == 1


def test_rows_stream_texts_as_they_are_answered(server, runs):
    body = {"model": runs["lora"].id, "input": {"facts": rows_of(runs["lora"])[0]["facts"]}}
    whole = httpx.post(f"{server}/v1/predict", json=body).json()["data"][0]["prediction"]
    told = httpx.post(f"{server}/v1/predict", json={**body, "stream": True}).text
    assert "".join(re.findall(r'"text": "(.*?)", "finish', told)) == whole


# In Chromium.


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    chromium = Browser(tmp_path_factory.mktemp("page"))
    yield chromium
    chromium.close()
    assert not chromium.faults


def bare(tag):
    return tag if tag[1:2] != "-" else tag[2:]


def choose(browser, run_id):
    place = f"runs.findIndex(run => run.id === '{run_id}')"
    browser.value(f"by('runs').querySelectorAll('input')[{place}].click()")


@pytest.mark.slow
def test_each_kind_of_answer_is_shown(browser, tmp_path):
    common = ["backbone=pocket_bert", ROWS, "train.max_steps=2", f"outputs={tmp_path}"]
    runs = {
        kind: ptrun.run(f"task=pocket_{kind}", "method=prompt_tuning", *common) for kind in KINDS
    }
    rows = {
        "ner": [TEXT], "words": [TEXT], "srl": [TEXT, "2"], "qa": ["Who is visited?", TEXT],
        "choice": [TEXT, "Who is visited?", "Frank Venn\nNora Hill"], "similarity": [TEXT, TEXT],
    }  # fmt: skip
    with serving(next(iter(runs.values())).folder.parent) as (address, *_):
        browser.open(address, width=PHONE)
        for kind, run in runs.items():
            choose(browser, run.id)
            browser.type(*rows[kind])
            shown = browser.shown()
            names = list(httpx.get(f"{address}/v1/models/{run.id}").json()["ptrun"]["fields"])
            values = [TEXT.split(), *rows[kind][1:]] if kind in KINDS[:3] else rows[kind]
            row = dict(zip(names, values, strict=True))
            row |= {"options": rows["choice"][2].split("\n")} if kind == "choice" else {}
            row |= {"predicate_index": 2} if kind == "srl" else {}
            (line,) = run.predict([row])
            if kind in KINDS[:3]:
                tags = [*line["prediction"], "O"]
                parts = [
                    word if tag == "O" or after == f"I-{tag[2:]}" else f"{word} {bare(tag)}"
                    for word, tag, after in zip(TEXT.split(), tags, tags[1:], strict=False)
                ]
                assert shown.split()[1:] == " ".join(parts).split()
            elif kind == "similarity":
                assert float(shown.split("\n")[-1]) == pytest.approx(line["prediction"], rel=1e-3)
            else:
                told = line["prediction"] or "No answer in the text"
                assert (line["option"] if kind == "choice" else told) in shown
            assert "{" not in shown
            assert browser.value("document.scrollingElement.scrollWidth") <= PHONE


@pytest.mark.slow
def test_labels_texts_and_keys(browser, folder, runs):
    with serving(folder, keys=[KEY]) as (address, *_):
        browser.open(address)
        for key, told in (("wrong", "does not take"), (KEY, "")):
            browser.value(f"by('key').value = '{key}', by('lock').requestSubmit()")
            shut = f"by('refusal').textContent.includes('{told}')" if told else "!by('room').hidden"
            browser.until(shut)
        assert (
            browser.value("runs.length")
            == len(runs)
            == browser.value("by('runs').querySelectorAll('label').length")
        )
        for name in ("labels", "topics"):
            choose(browser, runs[name].id)
            browser.type("a bright film")
            shown = browser.shown()
            (line,) = runs[name].predict(
                [{next(iter(rows_of(runs[name])[0])): "a bright film"}], probabilities=True
            )
            shares = sorted(line["probabilities"].values(), reverse=True)
            figures = [
                float(share)
                for share in re.findall(r"^(?:✓\s)?\w+\t\s*\t?([\d.]+)%", shown, re.MULTILINE)
            ]
            assert figures == pytest.approx([100 * share for share in shares], abs=0.051)
            assert shown.count("✓") == len(
                [line["prediction"]] if name == "labels" else line["prediction"]
            )
        choose(browser, runs["lora"].id)
        browser.value("by('all').checked = true")
        browser.type(rows_of(runs["lora"])[0]["facts"])
        browser.until("!stop")
        texts = browser.value(
            "[...run.log.lastChild.querySelectorAll('.text')].map(text => text.textContent)"
        )
        wanted = [
            runs[n].predict([{"facts": texts[0]}])[0]["prediction"]
            for n in ("prefix", "lora", "cartridge")
        ]
        assert sorted(texts[1:]) == sorted(wanted)
        browser.value(
            "by('filter').value = 'LORA writing', by('filter').dispatchEvent(new Event('input'))"
        )
        assert browser.value("by('count').textContent") == f"Runs (1 of {len(runs)})"
    browser.value("by('all').checked = false")
    browser.type("a film")
    assert browser.shown() == "The server does not answer. Is it running?"
    browser.faults.clear()  # the refused connection is one


@pytest.mark.slow
def test_a_conversation_is_told_stopped_and_begun_again(browser, tmp_path, monkeypatch):
    with talking(tmp_path) as (address, chat, _):
        browser.open(address)
        choose(browser, chat)
        browser.type("3 and 1")
        first = browser.shown()
        turns = [{"role": "user", "content": "3 and 1"}]
        body = {"model": chat, "messages": turns}
        said = httpx.post(f"{address}/v1/chat/completions", json=body, timeout=60).json()
        text = said["choices"][0]["message"]["content"]
        assert first.split("\n", 1)[1].strip().startswith(text.strip()[:20])
        browser.type("and 2")
        browser.shown()
        turns = browser.value("run.turns")
        assert [turn["role"] for turn in turns] == ["user", "assistant"] * 2
        assert turns[1] == {"role": "assistant", "content": text} and turns[2]["content"] == "and 2"
        browser.type("x " * 3000)
        assert "positions" in browser.shown() or "tokens" in browser.shown()
        assert (
            browser.value("boxes()[0].value.length") > 5000
            and browser.value("run.turns.length") == 4
        )
        browser.value("by('clear').click()")
        assert browser.value("run.turns") is None and browser.value("run.log.children.length") == 0
        browser.value("boxes()[0].value = '5 and 1', by('ask').requestSubmit()")
        browser.key("Escape")
        assert "topped" in browser.shown() or browser.value("run.turns.length") == 2
        browser.faults.clear()  # the answer 400

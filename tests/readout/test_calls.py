"""Calls of functions in public chat templates: their parts, and calls read back from texts."""

import json
from dataclasses import replace

import pytest

from ptrun.errors import UserError
from ptrun.readout.calls import CallForm
from ptrun.readout.chat import Chat
from ptrun.task.conversation import Conversation
from tests.readout import templates
from tests.readout.templates import EXPECTED

NO_CALLS = "tool_calls: the chat template of backbone=.* does not read it"
NO_JSON = "does not write arguments as JSON"
OTHER = "begins this answer in another way"
QWEN = ('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", True)
BEGIN, SEP, END = (
    text.replace("|", "\uff5c").replace("_", "\u2581")  # as DeepSeek spells them
    for text in (
        "<|tool_calls_begin|><|tool_call_begin|>", "<|tool_sep|>",
        "<|tool_call_end|><|tool_calls_end|>",
    )
)  # fmt: skip
FORMS = {
    "llama3": ('{"name": "', '", "parameters": ', "}", False),
    "mistral": ('[TOOL_CALLS] [{"name": "', '", "arguments": ', ', "id": "qzxcall12"}]', True),
    "qwen25": QWEN,
    "qwen3": QWEN,
    "qwen3_thinking": QWEN,
    "r1": (
        f"{BEGIN}function{SEP}", "\n```json\n", f"\n```{END}", True,
    ),
    "granite3": ('<|tool_call|>[{"name": "', '", "arguments": ', "}]", True),
    "command_r_tool_use": (
        '\nAction:\n```json\n[\n    {"tool_name": "', '", "parameters": ', "}\n]```\n", True,
    ),
    "glm4": ("", "\n", "", True),
    "deepseek_v31": (BEGIN, SEP, END, True),
    "chatml": NO_CALLS, "llama2": NO_CALLS, "gemma2": NO_CALLS, "gemma3": NO_CALLS,
    "phi3": NO_CALLS, "phi4": NO_CALLS, "smollm3": NO_CALLS, "command_r": NO_CALLS,
    "zephyr": NO_CALLS, "vicuna": NO_CALLS,
    "glm46": NO_JSON, "gemma4": NO_JSON, "minimax_m2": NO_JSON,
    "kimi_k2": "does not write the name of a function",
    "gpt_oss": OTHER, "nemotron_nano": OTHER,
}  # fmt: skip
"""The text before a name, between it and the arguments, behind them, and whether there may be
several calls; or why there are none."""
READ = [name for name, form in FORMS.items() if not isinstance(form, str)]
NAMES = ("add", "add_all")
ARGUMENTS = {"a": 3, "text": 'é "}]\n<tool_call>', "deep": [{"b": {}}]}


@pytest.fixture(scope="module")
def chat_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calls")
    backbones = {name: templates.backbone_of(name, folder) for name in EXPECTED}
    return lambda name, **options: Chat(backbone=backbones[name], **options)


@pytest.fixture(scope="module")
def form_of(chat_of):
    forms = {name: replace(CallForm.of(chat_of(name)), names=NAMES) for name in READ}
    return forms.__getitem__


def written(chat, *names, content=""):
    """Return what a template writes of a turn with calls of functions."""
    calls = [
        {"id": f"{n:09}", "type": "function", "function": {"name": name, "arguments": ARGUMENTS}}
        for n, name in enumerate(names)
    ]
    turn = {"role": "assistant", "content": content, "tool_calls": calls}
    (text,) = chat.answers([Conversation([templates.user("3 and 4")], turn)])
    return text


def test_every_public_template_has_its_line():
    assert FORMS.keys() == {*EXPECTED}


@pytest.mark.parametrize("name", FORMS)
def test_the_form_of_a_call_is_that_of_the_template(chat_of, name):
    if isinstance(FORMS[name], str):
        with pytest.raises(UserError, match=rf"^tools: .*{FORMS[name]}.*tool_choice \"none\""):
            CallForm.of(chat_of(name))
    else:
        form = CallForm.of(chat_of(name))
        found = (form.open, form.between, form.close, form.join is not None)
        assert found == FORMS[name]


def test_with_a_thought_kept_the_template_s_own_words_come_first(chat_of):
    form = CallForm.of(chat_of("qwen3", thinking="keep"))
    assert (form.lead, form.open) == ("<think>\n\n</think>\n\n", QWEN[0])
    form = CallForm.of(chat_of("gpt_oss", thinking="keep"))
    assert (form.open, form.between) == (
        " to=functions.",
        "<|channel|>commentary json<|message|>",
    )


@pytest.mark.parametrize("name", READ)
def test_what_a_template_writes_is_read_back(chat_of, form_of, name):
    form, chat = form_of(name), chat_of(name)
    for names in (["add"], ["add_all", "add"])[: 1 + (form.join is not None)]:
        text, calls = form.read(written(chat, *names))
        assert text == "" and [call["function"]["name"] for call in calls] == names
        assert all(json.loads(call["function"]["arguments"]) == ARGUMENTS for call in calls)
        assert all(len(call["id"]) == 9 for call in calls)
    if name == "mistral":
        assert [call["id"] for call in calls] == ["000000000", "000000001"]


@pytest.mark.parametrize("name", READ)
def test_words_around_a_call_stay(chat_of, form_of, name):
    form, call = form_of(name), written(chat_of(name), "add")
    before = "It is 7. " if form.open else ""
    text, calls = form.read(f"{before}{call}\nSo.")
    assert [call["function"]["name"] for call in calls] == [
        "add"
    ] and text.split() == f"{before}So.".split()


@pytest.mark.parametrize("name", READ)
def test_what_is_no_valid_call_stays_text(chat_of, form_of, name):
    form, call = form_of(name), written(chat_of(name), "add")
    end = call.index("{", call.index("add"))
    for text in (call.replace("add", "subtract"), call[: end + 9], call[:end] + "[1]", "7", ""):
        left, calls = form.read(text)
        for token in form.special:
            text = text.replace(token, "")
        assert calls == [] and left == text.strip()


@pytest.mark.parametrize("name", READ)
def test_no_part_of_a_call_is_sure_text(chat_of, form_of, name):
    form = form_of(name)
    before = "It is 7. " if form.open else ""
    text = before + written(chat_of(name), "add")
    for end in range(len(text) + 1):
        assert before.strip().startswith(form.sure(text[:end])), text[:end]
    assert form.sure("It is 7.") == "It is 7."

"""What conversations teach in public chat templates, against expectations written by hand."""

import json
import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptrun.readout.chat import Chat
from tests.readout import templates
from tests.readout.templates import CASES, EXPECTED, THINKING, Learned, asked, expected, talk_of

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
LEARNED = {
    name: [
        case
        for case in templates.cases_of(name)
        if isinstance(expected(name, case, "drop"), Learned)
        and not templates.differs(name, case, "drop")
    ]
    for name in EXPECTED
}
"""The cases that are learned with readout.thinking=drop."""
SOUND = [name for name in EXPECTED if {"one", "two"} <= {*LEARNED[name]}]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("templates")


@pytest.fixture(scope="module")
def outcomes(folder):
    return templates.outcomes(folder)


@pytest.fixture(scope="module")
def chat_of(folder, outcomes):
    """Return a function that reads the templates that are there."""
    backbones = {
        name: templates.PretrainedBackbone(name=name, path=str(folder / name)) for name in EXPECTED
    }
    return lambda name, **options: Chat(backbone=backbones[name], **options)


@pytest.mark.parametrize("name", EXPECTED)
def test_the_expected_texts_are_what_the_library_renders(name):
    for case in templates.cases_of(name):
        for thinking in THINKING:
            expectation = expected(name, case, thinking)
            if isinstance(expectation, Learned):
                row = templates.row_of(name, case)
                assert templates.rendered(name, row) == expectation.text, (case, thinking)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("thinking", THINKING)
def test_what_is_learned_is_what_is_expected(outcomes, name, thinking):
    for case in templates.cases_of(name):
        outcome, expectation = outcomes[name, case, thinking], expected(name, case, thinking)
        as_expected = not templates.differs(name, case, thinking)
        assert templates.agrees(outcome, expectation) == as_expected, (case, outcome, expectation)


@pytest.mark.parametrize("name", [name for name in EXPECTED if LEARNED[name]])
def test_the_prompt_is_what_stands_before_the_answer(chat_of, name):
    chat = chat_of(name)
    rows = chat.rows([talk_of(templates.row_of(name, case)) for case in LEARNED[name]])
    for row, case in zip(rows, LEARNED[name], strict=True):
        assert row.prompt == row.ids[: row.answer], case


@pytest.mark.parametrize("name", [name for name in EXPECTED if LEARNED[name]])
def test_the_last_turn_alone_is_learned(chat_of, name):
    chat = chat_of(name, turns="last")
    rows = chat.rows([talk_of(templates.row_of(name, case)) for case in LEARNED[name]])
    for row, case in zip(rows, LEARNED[name], strict=True):
        text, prompt, texts = expected(name, case, "drop")
        assert templates.learned(chat, row) == Learned(text, prompt, texts[-1:])


@pytest.mark.parametrize("name", SOUND)
def test_a_turn_of_weight_zero_is_context(chat_of, name):
    first, weightless, *rest = CASES["two"]
    row = {"messages": [first, {**weightless, "weight": 0}, *rest]}
    text, prompt, texts = expected(name, "two", "drop")
    assert templates.outcome(chat_of(name), row) == Learned(text, prompt, texts[1:])


@pytest.mark.parametrize("name", EXPECTED)
def test_a_developer_is_the_system(outcomes, chat_of, name):
    system, *rest = CASES["system"]
    row = {"messages": [{**system, "role": "developer"}, *rest]}
    assert templates.outcome(chat_of(name), row) == outcomes[name, "system", "drop"]


@pytest.mark.parametrize("name", [name for name in EXPECTED if LEARNED[name]])
def test_a_prompt_needs_no_answer(chat_of, name):
    chat = chat_of(name)
    talks = [asked(talk_of(templates.row_of(name, case))) for case in LEARNED[name]]
    for row, case in zip(chat.rows(talks), LEARNED[name], strict=True):
        assert templates.learned(chat, row).prompt == expected(name, case, "drop").prompt, case
        assert row.ids == row.learned == []


@pytest.mark.parametrize("name", EXPECTED)
def test_the_systems_words_stand_before_those_of_the_user(chat_of, name):
    chat = chat_of(name, system="first_user")
    joined = [templates.user("Be brief.\n\n3 and 4"), templates.assistant("7")]
    rows = [templates.row_of(name, "system"), {"messages": joined}]
    system, plain = chat.rows([talk_of(row) for row in rows])
    assert system == plain
    assert templates.learned(chat, system).text == templates.rendered(name, rows[1])


@pytest.mark.parametrize("name", ["qwen3", "gpt_oss"])
@pytest.mark.parametrize("key", ["thinking", "reasoning"])
def test_a_thought_has_several_names(outcomes, chat_of, name, key):
    turns = [
        {key if word == "reasoning_content" else word: text for word, text in turn.items()}
        for turn in CASES["think"]
    ]
    outcome = templates.outcome(chat_of(name, thinking="keep"), {"messages": turns})
    assert outcome == outcomes[name, "think", "keep"]


def test_a_name_picks_one_of_several_templates(folder, outcomes):
    names = {"default": "command_r", "tool_use": "command_r_tool_use"}
    backbone = templates.backbone_of("command_r", folder / "named")
    backbone.tokenizer().chat_template = {
        key: templates.template(name) for key, name in names.items()
    }
    for key, name in {None: "command_r", **names}.items():
        outcome = templates.outcome(
            Chat(backbone=backbone, template=key), templates.row_of(name, "two")
        )
        assert outcome == outcomes[name, "two", "drop"]


def test_the_published_page_is_that_of_the_templates(outcomes):
    page = runpy.run_path(str(BENCHMARKS / "chat_templates.py"))["markdown"]
    published = BENCHMARKS / "results" / "chat_templates.md"
    assert page(outcomes, templates) == published.read_text(encoding="utf-8")


# Random conversations.


@dataclass(frozen=True)
class Shape:
    """How a template writes a conversation; `{}` stands for a content.

    Args:
        start: before the turns, without a system turn.
        system: the same with one; None if the template has no place for it.
        user: a turn of the user, and what opens the assistant's.
        answer: what is learned of the assistant's turn.
        after: what follows it.
        last_user, last_answer, end: the same for the last turns; None if they are no exception.
        trim: the contents of all turns are stripped.
        last_lines: the last answer keeps the empty lines before it.
    """

    user: str
    answer: str
    after: str = ""
    start: str = ""
    system: str | None = None
    last_user: str | None = None
    last_answer: str | None = None
    end: str | None = None
    trim: bool = False
    last_lines: bool = True

    def pieces(self, turns):
        """Return the text in pieces: context, learned, context, ..."""
        turns, start = [*turns], self.start
        if turns[0]["role"] == "system":
            start = self.system.replace("{}", turns.pop(0)["content"])
        texts = [turn["content"].strip() if self.trim else turn["content"] for turn in turns]
        pieces = [start]
        for place in range(0, len(texts), 2):
            last = place == len(texts) - 2
            user = self.last_user if last and self.last_user else self.user
            if last and not self.last_lines:
                texts[-1] = texts[-1].lstrip("\n")
            answer = self.last_answer if last and self.last_answer else self.answer
            end = self.end if last and self.end is not None else self.after
            pieces[-1] += user.replace("{}", texts[place])
            pieces += [answer.replace("{}", texts[place + 1]), end]
        return pieces


IM = "<|im_start|>{}<|im_end|>\n"
IM_USER = "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
IM_SYSTEM = "<|im_start|>system\n{}<|im_end|>\n"
HEAD = "<|start_header_id|>%s<|end_header_id|>\n\n"
LLAMA3 = f"<|begin_of_text|>{HEAD % 'system'}Today Date: 01 Jan 2026\n\n%s<|eot_id|>"
TURN = "<|START_OF_TURN_TOKEN|><|%s_TOKEN|>"
GEMMA = "<start_of_turn>user\n{}<end_of_turn>\n<start_of_turn>model\n"
ROLE = "<|start_of_role|>%s<|end_of_role|>"
OSS = (
    "<|start|>system<|message|>Current date: 2026-01-01\n\nReasoning: medium\n\n"
    "# Valid channels: analysis, commentary, final.<|end|>"
)
BOS, EOS, USER, ASSISTANT = (
    text.replace("|", "\uff5c")
    for text in ("<|begin▁of▁sentence|>", "{}<|end▁of▁sentence|>", "<|User|>{}", "<|Assistant|>")
)
KIMI = "<|im_%s|>%s<|im_middle|>"
SHAPES = {
    "chatml": Shape(IM_USER, "{}<|im_end|>", "\n", system=IM_SYSTEM),
    "llama2": Shape("<s>[INST] {} [/INST]", " {} </s>", trim=True),
    "llama3": Shape(
        f"{HEAD % 'user'}{{}}<|eot_id|>{HEAD % 'assistant'}", "{}<|eot_id|>",
        start=LLAMA3 % "", trim=True,
    ),
    "gemma2": Shape(GEMMA, "{}<end_of_turn>", "\n", start="<bos>", trim=True),
    "phi3": Shape(
        "<|user|>\n{}<|end|>\n<|assistant|>\n", "{}<|end|>", "\n",
        system="<|system|>\n{}<|end|>\n", end="\n<|endoftext|>",
    ),
    "phi4": Shape(
        "<|im_start|>user<|im_sep|>{}<|im_end|><|im_start|>assistant<|im_sep|>", "{}<|im_end|>",
        system="<|im_start|>system<|im_sep|>{}<|im_end|>",
    ),
    "qwen25": Shape(
        IM_USER, "{}<|im_end|>", "\n",
        start=IM_SYSTEM.replace("{}", "You help."), system=IM_SYSTEM,
    ),
    "qwen3": Shape(
        IM_USER, "{}<|im_end|>", "\n",
        system=IM_SYSTEM, last_user=f"{IM_USER}<think>\n\n</think>\n\n", last_lines=False,
    ),
    "r1": Shape(
        f"{USER}{ASSISTANT}", EOS, start=BOS, system=f"{BOS}{{}}"
    ),
    "deepseek_v31": Shape(f"{USER}{ASSISTANT}</think>", EOS, start=BOS, system=f"{BOS}{{}}"),
    "gemma4": Shape(
        "<|turn>user\n{}<turn|>\n<|turn>model\n", "{}<turn|>", "\n", start="<bos>", trim=True
    ),
    "kimi_k2": Shape(
        f"{KIMI % ('user', 'user')}{{}}<|im_end|>{KIMI % ('assistant', 'assistant')}",
        "{}<|im_end|>", start=f"{KIMI % ('system', 'system')}You help.<|im_end|>",
        system=f"{KIMI % ('system', 'system')}{{}}<|im_end|>",
    ),
    "nemotron_nano": Shape(
        "<SPECIAL_11>User\n{}\n<SPECIAL_11>Assistant\n", "{}\n<SPECIAL_12>", "\n\n",
        start="<SPECIAL_10>System\n\n\n", trim=True,
        last_user="<SPECIAL_11>User\n{}\n<SPECIAL_11>Assistant\n<think>\n\n",
    ),
    "granite3": Shape(
        f"{ROLE % 'user'}{{}}<|end_of_text|>\n{ROLE % 'assistant'}", "{}<|end_of_text|>", "\n",
        start=f"{ROLE % 'system'}Date: January 01, 2026.\nYou help.<|end_of_text|>\n",
        system=f"{ROLE % 'system'}{{}}<|end_of_text|>\n",
    ),
    "command_r": Shape(
        f"{TURN % 'USER'}{{}}<|END_OF_TURN_TOKEN|>{TURN % 'CHATBOT'}", "{}<|END_OF_TURN_TOKEN|>",
        start="<BOS_TOKEN>", system=f"<BOS_TOKEN>{TURN % 'SYSTEM'}{{}}<|END_OF_TURN_TOKEN|>",
        trim=True,
    ),
    "gpt_oss": Shape(
        "<|start|>user<|message|>{}<|end|><|start|>assistant<|channel|>final<|message|>",
        "{}<|end|>", start=OSS, last_answer="{}<|return|>",
        system=f"{OSS}<|start|>developer<|message|># Instructions\n\n{{}}\n\n<|end|>",
    ),
    "glm4": Shape(
        "\n{}<|assistant|>", "\n{}<|user|>", start="[gMASK]<sop><|user|>", last_answer="\n{}",
        system="[gMASK]<sop><|system|>\n{}<|user|>",
    ),
    "zephyr": Shape(
        "<|user|>\n{}</s>\n<|assistant|>\n", "{}</s>", "\n", system="<|system|>\n{}</s>\n"
    ),
    "vicuna": Shape(" USER: {} ASSISTANT:", " {}</s>", start="You help.", system="{}"),
}  # fmt: skip
CALLS = {
    "qwen25": (
        '<tool_call>\n{"name": "find", "arguments": {"q": {}}}\n</tool_call><|im_end|>',
        "\n<|im_start|>user\n<tool_response>\n{}\n</tool_response><|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama3": (
        '{"name": "find", "parameters": {"q": {}}}<|eot_id|>',
        f"{HEAD % 'ipython'}{{}}<|eot_id|>{HEAD % 'assistant'}",
    ),
    "granite3": (
        '<|tool_call|>[{"name": "find", "arguments": {"q": {}}}]<|end_of_text|>',
        f"\n{ROLE % 'tool_response'}{{}}<|end_of_text|>\n{ROLE % 'assistant'}",
    ),
    "kimi_k2": (
        '<|tool_calls_section_begin|><|tool_call_begin|>c<|tool_call_argument_begin|>{"q": {}}'
        "<|tool_call_end|><|tool_calls_section_end|><|im_end|>",
        f"{KIMI % ('system', 'tool')}## Return of c\n{{}}<|im_end|>{KIMI % (('assistant',) * 2)}",
    ),
    "gemma4": (
        "<|tool_call>call:find{q:{}}<tool_call|><turn|>",
        "\n<|turn>tool\n{}<turn|>\n<|turn>model\n",
    ),
}
"""A call of `find` and what follows it up to the next turn of the assistant."""
LETTERS = st.sampled_from(
    [*"aB7жéñ好のกس🙂.,!?'\"&<>[]{}|#*\\/", " ", "\n", "\t", "\u00a0", "\u3000"]
)
TEXTS = st.text(LETTERS, min_size=1, max_size=12).filter(str.strip)


@st.composite
def conversations(draw):
    name = draw(st.sampled_from([name for name in SHAPES if name in SOUND]))
    texts = draw(st.lists(TEXTS, min_size=2, max_size=8).filter(lambda texts: len(texts) % 2 == 0))
    turns = [
        {"role": ("user", "assistant")[place % 2], "content": text}
        for place, text in enumerate(texts)
    ]
    if SHAPES[name].system and draw(st.booleans()):
        turns = [templates.system(draw(TEXTS)), *turns]
    users = [place for place, turn in enumerate(turns) if turn["role"] == "user"]
    return name, turns, draw(st.sampled_from(users)), draw(TEXTS)


@st.composite
def conversations_with_calls(draw):
    """Return turns in which the assistant calls a function, and their text in pieces."""
    name = draw(st.sampled_from([name for name in CALLS if not EXPECTED[name].get("differs")]))
    called, result = CALLS[name]
    shape, question, answer = SHAPES[name], draw(TEXTS), draw(TEXTS)
    turns = [templates.user(question)]
    pieces = [shape.start + shape.user.replace("{}", question.strip() if shape.trim else question)]
    for query in draw(st.lists(TEXTS, max_size=3)):
        arguments = json.dumps({"q": query}, ensure_ascii=False)
        function = {"name": "find", "arguments": draw(st.sampled_from([arguments, {"q": query}]))}
        turns.append(templates.assistant(None, tool_calls=[{"id": "c", "function": function}]))
        text = draw(TEXTS)
        turns.append({"role": "tool", "tool_call_id": "c", "content": text})
        value = query if name == "gemma4" else json.dumps(query, ensure_ascii=False)
        text = json.dumps(text, ensure_ascii=False) if name == "llama3" else text
        text = text.strip() if name == "gemma4" else text
        pieces += [called.replace("{}", value), result.replace("{}", text)]
    turns.append(templates.assistant(answer))
    answer = answer.strip() if shape.trim else answer
    return name, turns, [*pieces, shape.answer.replace("{}", answer), shape.after]


def judged_calls(chat_of, name, turns, pieces):
    chat, row = chat_of(name), {"messages": turns}
    assert "".join(pieces) == templates.rendered(name, row)
    templates.assert_learned(chat, *chat.rows([talk_of(row)]), pieces)


def judged(chat_of, name, turns, place, word):
    """Compare the tokens of a conversation with those of a shape, and change a user's word."""
    changed = [*turns[:place], templates.user(word), *turns[place + 1 :]]
    chat = chat_of(name)
    rows = chat.rows([talk_of({"messages": talk}) for talk in (turns, changed)])
    for row, talk in zip(rows, (turns, changed), strict=True):
        pieces = SHAPES[name].pieces(talk)
        assert "".join(pieces) == templates.rendered(name, {"messages": talk})
        templates.assert_learned(chat, row, pieces)
    assert len({tuple(row.ids[i] for i in row.learned) for row in rows}) == 1


@settings(max_examples=100, deadline=None, database=None, derandomize=True)
@given(conversations())
def test_random_conversations_teach_the_answers_and_their_ends(chat_of, case):
    judged(chat_of, *case)


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(conversations_with_calls())
def test_random_calls_are_learned(chat_of, case):
    judged_calls(chat_of, *case)


@pytest.mark.slow
@settings(max_examples=1500, deadline=None, database=None, derandomize=True)
@given(conversations())
def test_many_random_conversations_teach_the_answers_and_their_ends(chat_of, case):
    judged(chat_of, *case)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, database=None, derandomize=True)
@given(conversations_with_calls())
def test_many_random_calls_are_learned(chat_of, case):
    judged_calls(chat_of, *case)

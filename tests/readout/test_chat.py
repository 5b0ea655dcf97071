"""Conversations: which tokens are learned, with and without a template that says it."""

import json
import shutil

import pytest

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError, warn_once
from ptrun.readout.chat import DATE, Chat, stored_template, template_digest
from ptrun.task.conversation import Conversation
from ptrun.testing import read

_TURN = "{{ '[CLS]' if message.role == 'user' else '' }}"
PLAIN = "{% for message in messages %}" + _TURN + "{{ message.content }}[SEP]{% endfor %}"
MARKED = (
    "{% for message in messages %}{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content }}[SEP]{% endgeneration %}{% else %}"
    "[CLS]{{ message.content }}[SEP]{% endif %}{% endfor %}"
)
FORGETS = (
    "{% for message in messages %}{% if loop.last or message.role == 'user' %}"
    + _TURN
    + "{{ message.content }}[SEP]{% endif %}{% endfor %}"
)
SILENT = (
    "{% for message in messages %}{% if message.role == 'user' %}{{ message.content }}"
    "{% endif %}{% endfor %}"
)
RAISES = "{{ raise_exception('roles must alternate') }}"
THINKS = (
    "{%- set ns = namespace(last=0) -%}{%- for message in messages -%}"
    "{%- if message.role == 'user' -%}{%- set ns.last = loop.index0 -%}{%- endif -%}"
    "{%- endfor -%}{%- for message in messages -%}{{- '[CLS]' -}}"
    "{%- if message.role == 'assistant' and loop.index0 > ns.last -%}{{- 'A. a. ' -}}{%- endif -%}"
    "{{- message.content + '[SEP]' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '[CLS]' -}}{%- endif -%}"
)
OUTSIDE = MARKED.replace("[SEP]{% endgeneration %}", "{% endgeneration %}[SEP]")
SAYS_THINK = OUTSIDE.replace("{% generation %}", "{% generation %}A. a. ")
UNENDED = PLAIN.replace("[SEP]", " . ")
DATED = "{{ strftime_now('%d %b %Y') }} " + PLAIN
TALK = [
    {"role": "user", "content": "the film"},
    {"role": "assistant", "content": "was good"},
    {"role": "user", "content": "the plot"},
    {"role": "assistant", "content": "was bad"},
]


@pytest.fixture
def chat_of(tiny_folder, tmp_path):
    def made(stored, **options):
        folder = tmp_path / "llama"
        if not folder.exists():
            shutil.copytree(tiny_folder("llama"), folder)
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "chat_template": stored}))
        backbone = PretrainedBackbone(name="talker", path=str(folder), dtype="fp32")
        chat = Chat(backbone=backbone, **options)
        chat.check()
        return chat

    return made


def words(chat, ids):
    return chat._tokenizer.convert_ids_to_tokens(ids)


def row(chat, turns):
    """Return the words of the prompt, and of what is learned."""
    (row,) = chat.rows([Conversation(turns[:-1], turns[-1])])
    return words(chat, row.prompt), words(chat, [row.ids[i] for i in row.learned])


@pytest.mark.parametrize("template", [PLAIN, MARKED, OUTSIDE])
def test_the_assistants_turns_and_their_ends_are_learned(chat_of, template):
    chat = chat_of(template)
    prompt, learned = row(chat, TALK)
    assert learned == ["was", "good", "[SEP]", "was", "bad", "[SEP]"]
    assert prompt.count("[CLS]") == 2  # of the template alone
    assert words(chat, chat.ends) == ["[SEP]"]


def test_a_prompt_ends_where_the_assistant_writes(chat_of):
    chat = chat_of(PLAIN)
    (row,) = chat.rows([Conversation(TALK[:-1], TALK[-1])])
    (asked,) = chat.rows([Conversation(TALK[:-1])])
    assert row.prompt == row.ids[: row.learned[3]] == asked.prompt


@pytest.mark.parametrize("template", [THINKS, SAYS_THINK])
@pytest.mark.parametrize("answer", ["was good", "A", "a"])
def test_what_a_template_adds_before_an_answer_is_prompt(chat_of, template, answer):
    chat = chat_of(template)
    prompt, learned = row(chat, [TALK[0], {"role": "assistant", "content": answer}])
    assert prompt[-4:] == ["A", ".", "a", "."]
    assert learned == [*answer.split(), "[SEP]"]


def test_an_answer_without_an_end_is_noticed(chat_of, caplog):
    warn_once.cache_clear()
    chat_of(OUTSIDE)
    assert not caplog.text
    chat_of(UNENDED)
    assert "writes no special token after an answer: none is learned" in caplog.text


def test_a_special_token_in_a_turn_is_noticed(chat_of, caplog):
    held = [{**TALK[0], "content": "the [SEP] film"}, TALK[1]]
    chat = chat_of(PLAIN)
    chat.rows([Conversation(held[:1], held[1])] * 2, ["first", "second"])
    assert caplog.text.count("a turn holds '[SEP]', which is read as the special token") == 1


def test_of_several_templates_the_default_is_used(chat_of):
    named = [{"name": "tool_use", "template": SILENT}, {"name": "default", "template": PLAIN}]
    assert row(chat_of(named), TALK) == row(chat_of(PLAIN), TALK)
    with pytest.raises(UserError, match="its chat templates are tool_use, rag"):
        chat_of([{"name": name, "template": PLAIN} for name in ("tool_use", "rag")])


def test_a_template_that_asks_for_the_date_gets_a_fixed_one(chat_of, caplog):
    caplog.set_level("INFO")
    dates = (DATE, DATE, "2030-05-09")
    prompts = [chat_of(DATED, date=date).rows([Conversation(TALK[:1])])[0].prompt for date in dates]
    assert prompts[0] == prompts[1] != prompts[2]
    assert "asks for today's date: it gets 2030-05-09 (readout.date)" in caplog.text
    with pytest.raises(UserError, match=r"readout\.date=2030-05-09 changes nothing"):
        chat_of(PLAIN, date="2030-05-09")
    with pytest.raises(
        UserError, match=r"readout\.date=tomorrow: no day; expected one as 2026-01-01"
    ):
        chat_of(DATED, date="tomorrow")


@pytest.mark.parametrize("stored", ["config", "jinja", "named"])
def test_the_digest_is_that_of_the_text_however_it_is_stored(tiny_folder, tmp_path, stored):
    folder = shutil.copytree(tiny_folder("llama"), tmp_path / "llama")
    if stored == "jinja":
        (folder / "chat_template.jinja").write_text(PLAIN)
        (folder / "additional_chat_templates").mkdir()
        (folder / "additional_chat_templates" / "tool_use.jinja").write_text(SILENT)
    else:
        file = folder / "tokenizer_config.json"
        text = [{"name": "default", "template": PLAIN}] if stored == "named" else PLAIN
        file.write_text(json.dumps({**json.loads(file.read_text()), "chat_template": text}))
    assert template_digest(PretrainedBackbone(name="a", path=str(folder)), {}) == "f38e8bbf20a8584e"


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (None, "has no chat template"),
        (FORGETS, r"turn 2: .* in another way than as a last turn.*readout.turns=last"),
        (SILENT, "does not write the words of the assistant"),
        (RAISES, "refuses a conversation of user, assistant.*roles must alternate"),
        ("{% for message in messages", "chat template of .* cannot be read: unexpected end of"),
    ],
)
def test_a_template_that_does_not_say_is_refused(chat_of, template, told):
    with pytest.raises(UserError, match=told):
        row(chat_of(template), TALK)


# What a row and a run ask of the template.

ASKS = (
    "{%- for m in messages -%}{{- '[CLS]' -}}{{- m.reasoning_content -}}{{- m.content -}}"
    "{%- for call in m.tool_calls -%}{{- ' ' + call.function.name + ' ' -}}"
    "{{- call.function.arguments.values() | join -}}{%- endfor -%}{{- '[SEP]' -}}{%- endfor -%}"
    "{%- if tools -%}{{- '' -}}{%- endif -%}{{- formal -}}"
)
QUESTION, ANSWER = TALK[0], TALK[1]
SYSTEM = {"role": "system", "content": "the plot"}
CALL = {"id": "a", "type": "function", "function": {"name": "film", "arguments": {"film": "a"}}}
CALLED = [QUESTION, {"role": "assistant", "content": "", "tool_calls": [CALL]}]
ALTERNATE = (
    "{% for m in messages %}{% if m.role not in ('user', 'assistant') %}"
    "{{ raise_exception('no such role') }}{% endif %}" + _TURN + "{{ m.content }}[SEP]{% endfor %}"
).replace("message.", "m.")
NO_SYSTEM = PLAIN.replace("in messages", "in messages if message.role != 'system'")


def learned(chat, turns, **variables):
    """Return the words that are learned of each turn."""
    (row,) = chat.rows([Conversation(turns[:-1], turns[-1], variables)], ["x"])
    text = " ".join(words(chat, [row.ids[i] for i in row.learned]))
    assert all(row.ids[i] in chat.ends for i in row.ends)
    return [part.strip() for part in text.split("[SEP]")[:-1]]


def test_an_answer_that_the_template_opens_otherwise_is_refused_or_kept(chat_of):
    kept = chat_of(THINKS, thinking="keep")
    prompt, _ = row(kept, TALK)
    assert prompt[-1] == "[CLS]"
    assert learned(kept, TALK) == ["was good", "A . a . was bad"]
    assert learned(chat_of(THINKS), TALK) == ["was good", "was bad"]
    other = THINKS.replace("'A. a. '", "('A. a. ' if message.content != 'was bad' else '')")
    with pytest.raises(UserError, match=r"x: the chat template .* readout.thinking=keep"):
        learned(chat_of(other), TALK)
    opens = PLAIN + "{% if add_generation_prompt %}A.{% endif %}"
    assert learned(chat_of(opens), TALK) == ["was good", "was bad"]
    with pytest.raises(UserError, match=r"x: the chat template .*readout.thinking=drop"):
        learned(chat_of(opens, thinking="keep"), TALK)


def test_a_token_that_begins_before_an_answer_is_a_part_of_it():
    backbone = read("method=lora", "task=pocket_writing", "backbone=pocket_gpt2")[0].backbone
    form = "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|endoftext|>{% endfor %}"
    form += "{% if add_generation_prompt %}[assistant] {% endif %}"
    turns = [{"role": "user", "content": "A"}, {"role": "assistant", "content": "It is."}]
    (row,) = Chat(backbone=backbone, template=form).rows([Conversation(turns[:1], turns[1])])
    learned = backbone.tokenizer().decode([row.ids[i] for i in row.learned])
    assert learned == " It is.<|endoftext|>" and row.prompt == row.ids[: row.answer]


def test_an_assistant_may_speak_first(chat_of):
    named = PLAIN.replace("{% for", "{{ messages[0].role[:0] }}{% for", 1)
    assert learned(chat_of(named), [ANSWER, *TALK[2:]]) == ["was good", "was bad"]


def test_the_last_turn_alone_is_learned(chat_of):
    for template in (PLAIN, MARKED, FORGETS):
        assert learned(chat_of(template, turns="last"), TALK) == ["was bad"]
    turns = [QUESTION, {**ANSWER, "unlearned": True}, *TALK[2:]]
    assert learned(chat_of(PLAIN), turns) == ["was bad"]


def test_calls_and_reasoning_are_learned_as_the_template_writes_them(chat_of):
    chat = chat_of(ASKS)
    call = "film a"
    assert learned(chat, CALLED) == [call]
    tool = {"role": "tool", "content": "it", "tool_call_id": "a"}
    assert learned(chat, [*CALLED, tool, ANSWER], tools=[{}]) == [call, "was good"]
    thought = {**ANSWER, "reasoning_content": "the plot "}
    assert learned(chat, [QUESTION, thought, *TALK[2:]]) == ["the plot was good", "was bad"]
    only_none = ASKS.replace("in m.tool_calls", "in m.tool_calls if m.content is none").replace(
        "m.content -}}", "m.content or '' -}}"
    )
    assert learned(chat_of(only_none), CALLED) == [call]


TWO_CALLS = [QUESTION, {**CALLED[1], "tool_calls": [CALL, CALL]}]
THOUGHT = [QUESTION, {**ANSWER, "reasoning_content": "so"}]
NOT_READ = [
    (PLAIN, TALK, {"tools": [{}]}, "x: tools: the chat template .* does not read it"),
    (ASKS, TALK, {"loud": 1}, "x: chat_template_kwargs.loud: .* does not read it"),
    (PLAIN, CALLED, {}, "x: tool_calls: .* does not read it"),
    (ASKS.replace("in m.tool_calls", "in []"), CALLED, {}, "x: tool_calls: .* does not read"),
    (ASKS.replace("arguments.values()", "name"), CALLED, {}, "x: tool_calls: .* does not read"),
    (
        ASKS.replace("in m.tool_calls", "in (m.tool_calls or [])[:1]"),
        TWO_CALLS,
        {},
        "x: call 2 of turn 2",
    ),
    (PLAIN, THOUGHT, {}, "x: reasoning_content: .* does not read it"),
    (ALTERNATE, [SYSTEM, *TALK], {}, "x: .*no such role.*readout.system=first_user"),
    (NO_SYSTEM, [SYSTEM, *TALK], {}, r"x: turn 1 \(role system\).*readout.system=first_user"),
    (NO_SYSTEM, [*TALK, SYSTEM, *TALK], {}, r"x: turn 5 \(role system\)"),
    (ALTERNATE, [QUESTION, {**SYSTEM, "role": "tool"}, ANSWER], {}, "no such role"),
]


@pytest.mark.parametrize(("template", "turns", "variables", "told"), NOT_READ)
def test_what_a_template_does_not_read_is_refused_by_name(
    chat_of, template, turns, variables, told
):
    with pytest.raises(UserError, match=told):
        learned(chat_of(template), turns, **variables)


@pytest.mark.parametrize("template", [ALTERNATE, NO_SYSTEM, PLAIN])
def test_the_systems_text_comes_before_the_first_turn_of_the_user(chat_of, template):
    chat = chat_of(template, system="first_user")
    prompt, _ = row(chat, [SYSTEM, *TALK])
    assert prompt[:5] == ["[CLS]", "the", "plot", "the", "film"]
    assert learned(chat, [SYSTEM, *TALK]) == ["was good", "was bad"]
    with pytest.raises(
        UserError, match=r"turn 4 is the system's, and readout\.system=first_user moves"
    ):
        row(chat, [*TALK[:3], SYSTEM, *TALK[2:]])


def test_a_variable_of_the_row_changes_the_text(chat_of):
    chat = chat_of(PLAIN + "{% if add_generation_prompt %}{{ formal }}{% endif %}", thinking="keep")
    prompts = [chat.rows([Conversation([QUESTION], None, {"formal": w})])[0].prompt for w in "aA"]
    assert prompts[0] != prompts[1]


# `readout.chat_template`.


def test_a_template_of_ones_own_is_stored_as_its_text(tiny_folder, tmp_path):
    backbone = PretrainedBackbone(name="a", path=str(tiny_folder("llama")))
    file = tmp_path / "own.jinja"
    for text in (MARKED, f" {MARKED}Answer: "):  # white space around a template is written, too
        file.write_text(text)
        assert stored_template(backbone, f"@{file}") == text
    chatml = stored_template(backbone, "chatml")
    chat = Chat(backbone=backbone, template=chatml)
    assert learned(chat, TALK) == ["was good", "was bad"]
    one, other = ({"chat_template": text} for text in (MARKED, chatml))
    assert template_digest(backbone, one) != template_digest(backbone, other)
    file.write_text("the same for all")
    for option, told in [
        (f"@{file}", "no template; it writes the same text"),
        (f"@{tmp_path / 'absent'}", "absent"),
        ("chatm", r"chatm; did you mean 'chatml'\?: no template of"),
    ]:
        with pytest.raises(UserError, match=told):
            stored_template(backbone, option)


def test_a_name_picks_among_the_tokenizers_templates(chat_of):
    named = [{"name": "tool_use", "template": FORGETS}, {"name": "default", "template": PLAIN}]
    assert learned(chat_of(named, template="tool_use", turns="last"), TALK) == ["was bad"]
    with pytest.raises(UserError, match="use chatml, @FILE, tool_use, default"):
        chat_of(named, template="rag")

"""Conversations: which tokens are learned, with and without a template that says it."""

import json
import shutil

import pytest

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError, warn_once
from ptrun.readout.chat import DATE, Chat, template_digest

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
    def made(template, **options):
        folder = tmp_path / "llama"
        if not folder.exists():
            shutil.copytree(tiny_folder("llama"), folder)
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "chat_template": template}))
        backbone = PretrainedBackbone(name="talker", path=str(folder), dtype="fp32")
        return Chat(backbone, **options)

    return made


def words(chat, ids):
    return chat._tokenizer.convert_ids_to_tokens(ids)


def row(chat, turns):
    """Return the words of the prompt, and of what is learned."""
    ((prompt, ids, learned),) = chat.rows([(turns[:-1], turns[-1]["content"])])
    return words(chat, prompt), words(chat, [ids[i] for i in learned])


@pytest.mark.parametrize("template", [PLAIN, MARKED, OUTSIDE])
def test_the_assistants_turns_and_their_ends_are_learned(chat_of, template):
    chat = chat_of(template)
    prompt, learned = row(chat, TALK)
    assert learned == ["was", "good", "[SEP]", "was", "bad", "[SEP]"]
    assert prompt.count("[CLS]") == 2  # of the template alone
    assert words(chat, chat.ends) == ["[SEP]"]


def test_a_prompt_ends_where_the_assistant_writes(chat_of):
    chat = chat_of(PLAIN)
    ((prompt, ids, places),) = chat.rows([(TALK[:-1], TALK[-1]["content"])])
    assert prompt == ids[: places[3]] == chat.rows([(TALK[:-1], None)])[0][0]


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


def test_of_several_templates_the_default_is_used(chat_of):
    named = [{"name": "tool_use", "template": SILENT}, {"name": "default", "template": PLAIN}]
    assert row(chat_of(named), TALK) == row(chat_of(PLAIN), TALK)
    with pytest.raises(UserError, match="its chat templates are tool_use, rag"):
        chat_of([{"name": name, "template": PLAIN} for name in ("tool_use", "rag")])


def test_a_template_that_asks_for_the_date_gets_a_fixed_one(chat_of, caplog):
    caplog.set_level("INFO")
    dates = (DATE, DATE, "2030-05-09")
    prompts = [chat_of(DATED, date=date).rows([(TALK[:1], None)])[0][0] for date in dates]
    assert prompts[0] == prompts[1] != prompts[2]
    assert "asks for today's date: it gets 2030-05-09 (readout.date)" in caplog.text
    with pytest.raises(UserError, match=r"readout\.date=2030-05-09 changes nothing"):
        chat_of(PLAIN, date="2030-05-09")


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
        (FORGETS, "writes an earlier turn in another way"),
        (SILENT, "shows no token of the assistant"),
        (RAISES, "refuses a conversation of user, assistant.*roles must alternate"),
    ],
)
def test_a_template_that_does_not_say_is_refused(chat_of, template, told):
    with pytest.raises(UserError, match=told):
        row(chat_of(template), TALK)

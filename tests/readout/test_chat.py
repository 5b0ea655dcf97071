"""Conversations: which tokens are learned, with and without a template that says it."""

import json
import shutil

import pytest

from ptrun.backbone.pretrained import PretrainedBackbone
from ptrun.errors import UserError
from ptrun.readout.chat import Chat

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
TALK = [
    {"role": "user", "content": "the film"},
    {"role": "assistant", "content": "was good"},
    {"role": "user", "content": "the plot"},
    {"role": "assistant", "content": "was bad"},
]


@pytest.fixture
def chat_of(tiny_folder, tmp_path):
    def made(template):
        folder = tmp_path / "llama"
        if not folder.exists():
            shutil.copytree(tiny_folder("llama"), folder)
        file = folder / "tokenizer_config.json"
        settings = json.loads(file.read_text())
        file.write_text(json.dumps({**settings, "chat_template": template}))
        return Chat(PretrainedBackbone(name="talker", path=str(folder), dtype="fp32"))

    return made


def words(chat, ids):
    return chat._tokenizer.convert_ids_to_tokens(ids)


@pytest.mark.parametrize("template", [PLAIN, MARKED])
def test_the_assistants_turns_and_their_ends_are_learned(chat_of, template):
    chat = chat_of(template)
    ids, places = chat.learned(TALK)
    assert words(chat, [ids[i] for i in places]) == ["was", "good", "[SEP]", "was", "bad", "[SEP]"]
    assert words(chat, ids).count("[CLS]") == 2  # of the template alone
    assert words(chat, chat.ends) == ["[SEP]"]


@pytest.mark.parametrize("template", [PLAIN, MARKED])
def test_a_users_words_change_no_learned_place(chat_of, template):
    chat = chat_of(template)
    other = [{**turn, "content": "a plot"} if turn["role"] == "user" else turn for turn in TALK]
    assert chat.learned(other)[1] == chat.learned(TALK)[1]
    assert chat.learned(other)[0] != chat.learned(TALK)[0]


def test_a_prompt_ends_where_the_assistant_writes(chat_of):
    chat = chat_of(PLAIN)
    ids, places = chat.learned(TALK)
    assert chat.prompt(TALK[:-1]) == ids[: places[3]]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        (None, "has no chat template"),
        (FORGETS, "changes earlier turns"),
        (SILENT, "shows no token of the assistant"),
        (RAISES, "refuses a conversation of user, assistant.*roles must alternate"),
    ],
)
def test_a_template_that_does_not_say_is_refused(chat_of, template, told):
    with pytest.raises(UserError, match=told):
        chat_of(template).learned(TALK)

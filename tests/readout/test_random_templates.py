"""Random templates: what is learned is what the template is made to write for the assistant."""

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ptrun.readout.chat import Chat
from tests.readout import templates
from tests.readout.templates import assistant, user

END, USER, ASSISTANT, RETURN = "<|end|>", "<|user|>", "<|assistant|>", "<|return|>"
FINAL = "<|endoftext|>"


@dataclass(frozen=True)
class Template:
    """A template: what stands around the contents.

    Args:
        start: before the first turn.
        user: before and after a content of the user.
        opened: what opens a turn of the assistant.
        block: what follows it by itself; in the last turn alone, or in all.
        opens: the generation prompt has the block too.
        answer: before and after a content of the assistant, and what follows its end.
        last: the end of the last turn, if it is another one.
        final: what follows all turns.
        trim: contents are stripped.
        marked: what `{% generation %}` holds: nothing, `content`, `words` with their end, `turn`.
    """

    start: str
    user: tuple[str, str]
    opened: str
    block: str
    everywhere: bool
    opens: bool
    answer: tuple[str, str, str]
    last: str
    final: str
    trim: bool
    marked: str

    def text(self):
        """Return the template."""
        before, end, after = self.answer
        content = "turn.content | trim" if self.trim else "turn.content"
        last_end = "loop.last and not add_generation_prompt"
        parts = {
            "turn": [_says(self.opened)],
            "words": [_says(self.block, None if self.everywhere else "loop.last"), _says(before)],
            "content": ["{{- " + content + " -}}"],
        }
        ends = {
            "content": [],
            "words": [
                _says(self.last or end, last_end),
                _says(end, f"not ({last_end})"),
            ],
            "turn": [_says(after)],
        }
        written = ""
        for level in ("content", "words", "turn"):
            inner = parts[level][-1:] if level == "words" else parts[level]
            outer = parts[level][:-1] if level == "words" else []
            written = "".join([*inner, written, *ends[level]])
            if self.marked == level:
                written = "{%- generation -%}" + written + "{%- endgeneration -%}"
            written = "".join([*outer, written])
        asks, told = self.user
        return (
            _says(self.start) + "{%- for turn in messages -%}{%- if turn.role == 'user' -%}"
            f"{_says(asks)}{{{{- {content} -}}}}{_says(told)}{{%- else -%}}{written}{{%- endif -%}}"
            "{%- endfor -%}"
            + _says(self.opened + self.block * self.opens, "add_generation_prompt")
            + _says(self.final, "not add_generation_prompt")
        )  # fmt: skip

    def pieces(self, texts, thinking):
        """Return a conversation in pieces: context, learned, context, ..."""
        before, plain_end, after = self.answer
        texts = [text.strip() for text in texts] if self.trim else texts
        pieces = [self.start]
        for place in range(0, len(texts), 2):
            last = place == len(texts) - 2
            block = self.block if self.everywhere or last else ""
            end = (last and self.last) or plain_end
            words = before + texts[place + 1] + end
            following = after + (self.final if last else self.user[0])
            if not end:  # the token of what follows ends the turn
                token = next((token for token in (USER, FINAL) if following.startswith(token)), "")
                words, following = words + token, following.removeprefix(token)
            context = self.user[1] + self.opened
            if block and self.opens:
                context += block
            elif block and thinking == "drop":
                context, words = context + block + before, words.removeprefix(before)
            else:
                words = block + words
            spaces = len(context) - len(context.rstrip(" "))  # of the next word's token
            context, words = context[: len(context) - spaces], " " * spaces + words
            lead = self.user[0] if place == 0 else ""
            pieces[-1] += lead + texts[place] + context
            pieces += [words, following]
        return pieces


def _says(text, condition=None):
    return "{{- " + json.dumps(text) + (f" if {condition} else ''" if condition else "") + " -}}"


TEXTS = st.text(st.sampled_from("aB7ж好.,!' \n\t"), min_size=1, max_size=6).filter(str.strip)
OPTIONS = st.fixed_dictionaries(
    {
        "start": st.sampled_from(["", "<s>", "<s>Be good.\n"]),
        "user": st.tuples(
            st.sampled_from([USER, f"{USER}\n", "User: ", "\nUser:"]),
            st.sampled_from(["\n", END, f"{END}\n", " [/I]"]),
        ),
        "opened": st.sampled_from([ASSISTANT, f"{ASSISTANT}\n", "Assistant:", "### A\n", ""]),
        "block": st.sampled_from(["", "", "<think>\n\n</think>\n\n", "\n<think></think>", "<m>f"]),
        "everywhere": st.booleans(),
        "opens": st.booleans(),
        "answer": st.tuples(
            st.sampled_from(["", " ", "\n"]),
            st.sampled_from([END, END, f" {END}", f"\n{END}", ""]),
            st.sampled_from(["", "\n", "\n\n"]),
        ),
        "last": st.sampled_from(["", "", RETURN]),
        "final": st.sampled_from(["", FINAL]),
        "trim": st.booleans(),
        "marked": st.sampled_from(["", "", "content", "words", "turn"]),
    }
)


def sensible(options):
    """Return a template with what templates have: ends that can be told apart, and the like."""
    template = Template(**options)
    before, end, after = template.answer
    if template.block:
        opens = template.opens and template.everywhere
        template = replace(template, opened=template.opened or ASSISTANT, opens=opens)
    if template.marked:
        template = replace(template, block="")
        before, end = "" if template.marked == "content" else before, end or END
    if not end:
        template, after = replace(template, user=(USER, template.user[1])), ""
    elif template.final:
        after = after or "\n"
    return replace(template, answer=(before, end, after))


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    return templates.backbone_of("random", tmp_path_factory.mktemp("random"))


@st.composite
def cases(draw):
    texts = draw(st.lists(TEXTS, min_size=2, max_size=6).filter(lambda texts: len(texts) % 2 == 0))
    return sensible(draw(OPTIONS)), texts, draw(st.sampled_from(templates.THINKING))


def judged(backbone, template, texts, thinking):
    tokenizer = backbone.tokenizer()
    tokenizer.chat_template = template.text()
    turns = [(user, assistant)[place % 2](text) for place, text in enumerate(texts)]
    pieces = template.pieces(texts, thinking)
    assert "".join(pieces) == tokenizer.apply_chat_template(turns, tokenize=False)
    chat = Chat(backbone=backbone, thinking=thinking)
    (row,) = chat.rows([templates.talk_of({"messages": turns})])
    templates.assert_learned(chat, row, pieces)


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(cases())
def test_random_templates_teach_what_they_write(backbone, case):
    judged(backbone, *case)


@pytest.mark.slow
@settings(max_examples=1000, deadline=None, database=None, derandomize=True)
@given(cases())
def test_many_random_templates_teach_what_they_write(backbone, case):
    judged(backbone, *case)

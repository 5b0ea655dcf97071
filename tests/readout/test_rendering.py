"""Templates are rendered as transformers renders them, in a process with limits."""

import os
import time
from pathlib import Path

import pytest

from ptrun.readout.rendering import CLOCK, RENDERER, Renderer, TemplateError
from tests.tiers import tiered

TURNS = [
    {"role": "system", "content": "Answer in <one> word & é."},
    {"role": "user", "content": 'What is "it"?'},
    {"role": "assistant", "content": " a boat\n"},
]
PARITY = [
    "{% for m in messages %}{{ m.role }}: {{ m['content'] | trim }}\n{% endfor %}",
    "{%- for m in messages -%}\n  {{ bos_token + m.content }}{%- endfor %}\n\n",
    "{{ messages | tojson }} {{ {'b': 1, 'a': 'é<'} | tojson(indent=2, sort_keys=true) }}",
    "{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.content }}{% break %}"
    "{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}"
    "{{ ns.n }}{% if tools is none and not documents %}none{% endif %}{{ unknown }}",
    "{% macro say(m) %}{{ m.role }}{% endmacro %}{% for m in messages %}{{ say(m) }}{% endfor %}"
    "{% if add_generation_prompt %}assistant{% endif %}",
    "{% for m in messages %}{% if m.role == 'assistant' %}<{% generation %}{{ m.content }}"
    "</s>{% endgeneration %}>{% else %}{{ m.content }}{% endif %}\n{% endfor %}",
]
GREEDY = {
    "two loops": ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
                  "2 s of the processor"),
    "a power": ("{{ 10 ** (10 ** 9) }}", "2 s of the processor"),
    "repeated": ("{{ 'a' * 2000000000 }}", "1,024 MiB"),
    "grown": ("{% set n = namespace(x='a') %}{% for i in range(34) %}{% set n.x = n.x * 64 %}"
              "{% endfor %}{{ n.x }}", "1,024 MiB"),
    "indented": ("{{ [1] | tojson(indent=10 ** 9) }}", "1,024 MiB|2 s"),
    "centred": ("{{ 'a'.center(3 * 10 ** 9) }}", "1,024 MiB"),
    "padded": ("{{ '%999999999d' % 1 }}", "1,024 MiB|2 s"),
    "written": ("{% for i in range(99999) %}{% for j in range(99) %}aaaaaaaa{% endfor %}"
                "{% endfor %}",
                "8,388,608 letters"),
}  # fmt: skip
DRAWN = ["{{ [1, 2] | random }}", "{{ lipsum() }}"]


def rendered(template, turns=TURNS, *, opened=False):
    """Return the text, its marks, and whether the template reads the clock."""
    asked = [({"bos_token": "<s>"}, {"it": (turns, opened)})]
    (texts,), names = RENDERER.render(template, "2026-01-01", asked)
    return *texts["it"], CLOCK in names


@pytest.mark.parametrize("template", PARITY)
def test_a_template_is_rendered_as_the_library_does(template):
    from transformers.utils.chat_template_utils import render_jinja_template

    for count, opened in ((3, False), (2, True)):
        options = {"add_generation_prompt": opened, "bos_token": "<s>"}
        (theirs,), spans = render_jinja_template(
            [TURNS[:count]], chat_template=template, return_assistant_tokens_mask=True, **options
        )
        text, marks, clock = rendered(template, TURNS[:count], opened=opened)
        assert (text, [tuple(mark) for mark in marks]) == (theirs, *map(list, spans))
        assert not clock


def test_the_clock_stands_still():
    assert rendered("{{ strftime_now('%d %b %Y') }}") == ("01 Jan 2026", [], True)


@pytest.mark.parametrize("case", tiered(GREEDY, {"two loops", "repeated", "written"}.__contains__))
def test_time_memory_and_output_have_limits(case):
    template, limit = GREEDY[case]
    began = time.thread_time()
    with pytest.raises(TemplateError, match=limit):
        rendered(template)
    assert time.thread_time() - began < 1  # of this process
    assert rendered("{{ messages[0].role }}")[0] == "system"


@pytest.mark.parametrize("template", DRAWN)
def test_what_draws_random_values_is_refused(template):
    with pytest.raises(TemplateError, match=r"random|lipsum"):
        rendered(template)


def test_the_conversation_that_cannot_be_rendered_is_named():
    template = "{% if messages[0].content == 'b' %}{% for i in range(99999) %}{% for j in range(999"
    template += "99) %}{% endfor %}{% endfor %}{% endif %}{{ 'x' * 99999 }}"
    turns = [[{"role": "user", "content": text}] for text in "aaaba"]
    with pytest.raises(TemplateError) as told:
        RENDERER.render(template, "2026-01-01", [({}, {"it": (one, False)}) for one in turns])
    assert told.value.place == 3


def test_no_conversation_has_no_answer():
    assert RENDERER.render("a", "2026-01-01", []) == ([], set())
    assert rendered("{{ messages[0].role }}")[0] == "system"


def test_many_long_conversations_fill_no_pipe():
    turns = [{"role": "user", "content": "a" * 100_000}]
    asked = [({}, {"it": (turns, False)})] * 40
    texts, _ = RENDERER.render("{{ messages[0].content }}", "2026-01-01", asked)
    assert [len(one["it"][0]) for one in texts] == [100_000] * 40


def test_a_template_opens_no_file():
    """An escape from the sandbox would find neither files nor sockets."""
    renderer = Renderer()
    renderer.render("a", "2026-01-01", [({}, {"it": ([], False)})])
    limits = Path(f"/proc/{renderer._process.pid}/limits").read_text()
    assert [line.split()[3] for line in limits.splitlines() if line.startswith("Max open")] == ["3"]
    renderer.close()


def test_a_forked_process_has_its_own(monkeypatch):
    rendered("a")
    first = RENDERER._process.pid
    monkeypatch.setattr(RENDERER, "_owner", os.getpid() + 1)  # as a fork sees it
    process = RENDERER._process
    rendered("b")
    assert RENDERER._process.pid != first and process.returncode == 0
    process.returncode = None
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()

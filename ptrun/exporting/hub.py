"""Upload an exported run to the hub, or say what would be uploaded."""

import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ptrun.errors import UserError
from ptrun.exporting.export import export
from ptrun.runs.finished import Finished

_REPO = re.compile(r"[\w.-]+/[\w.-]+")


def to_hub(run: Finished, typed: Sequence[str], repo: str, *, push: bool) -> str:
    """Export a run to a temporary folder, and with `push` upload that; return what was done.

    A new repository is private. The files name the backbone by its hub id, or by its name alone.

    Raises:
        UserError: the repository has no valid name, the run cannot be exported, or the hub refuses.
    """
    if not _REPO.fullmatch(repo):
        raise UserError(f"export --to hub {repo}: expected USER/NAME, such as ann/sst2-prompt.")
    with TemporaryDirectory() as parent:
        folder = Path(parent) / "adapter"
        done = export(run, typed, folder, run.backbone.hub or run.backbone.name)
        files = [f"  {f.name}  {f.stat().st_size:,} bytes" for f in sorted(folder.iterdir())]
        listed = "\n".join([done.line(), *files])
        if not push:
            return f"{listed}\nNothing was uploaded. Add --push to upload these files to {repo}."
        return f"{listed}\nuploaded to {_upload(folder, repo, run.done.run_id)}"


def _upload(folder: Path, repo: str, run_id: str) -> str:
    """Upload a folder to a repository, which is made if it is missing; return its address.

    Raises:
        UserError: the hub refuses or does not answer.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi()
    try:
        api.create_repo(repo, private=True, exist_ok=True)
        done = api.upload_folder(repo_id=repo, folder_path=folder, commit_message=f"ptrun {run_id}")
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0][:160]
        raise UserError(
            f"export --to hub {repo}: the hub refused ({reason}).\n"
            "Type `hf auth login` once, or set HF_TOKEN, and use a name that you may write."
        ) from error
    return str(done)

"""Weights & Biases: live with an API key, else in files below the run folder.

The key goes to the server of `$WANDB_BASE_URL`, else to that of `wandb login` in the user's own
settings, else to wandb's. `./wandb/settings` may come with somebody else's files, so it is refused
if it names another server.
"""

import configparser
import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ptrun.errors import UserError, visible
from ptrun.files import read_text
from ptrun.tracking.trackers import final
from ptrun.types import RunResult

_SERVER = "https://api.wandb.ai"
_HARMLESS = ("entity", "project", "mode", "disabled", "organization")
_LARGEST = 100_000  # bytes of a settings file


class _Wandb:
    """A wandb run with the id of the ptrun run."""

    def __init__(self, folder: Path, run_id: str, config: Mapping[str, Any], *, project: str):
        self.keys: dict[str, Any] = {"project": project, "id": run_id, "name": run_id}
        self.keys |= {"dir": folder, "group": folder.parent.name, "config": dict(config)}

    def open(self) -> None:
        server = _server()
        _check_folder(server)
        import wandb

        self.run = wandb.init(
            **self.keys,
            resume="allow",
            mode="online" if has_key() else "offline",
            reinit="create_new",  # runs that share passes are in one process
            settings=wandb.Settings(silent=True, console="off", base_url=server),
        )

    def log(self, numbers: Mapping[str, float], step: int | None) -> None:
        self.run.log({**numbers, **({} if step is None else {"step": step})})

    def finish(self, result: RunResult | None) -> None:
        self.run.summary.update(final(result))
        done = result is not None and result.status == "finished"
        self.run.finish(exit_code=0 if done else 1)


TRACKER = _Wandb


def _server() -> str:
    """Return the address that the user chose."""
    if typed := os.environ.get("WANDB_BASE_URL"):
        return typed
    folder = os.environ.get("WANDB_CONFIG_DIR") or Path("~/.config/wandb").expanduser()
    return _settings(Path(folder, "settings"), links=True).get("base_url", _SERVER)


def _check_folder(server: str) -> None:
    """Refuse settings of the current folder that change where a key goes."""
    for file in (Path(".wandb", "settings"), Path("wandb", "settings")):
        for key, value in _settings(file).items():
            ours = key == "base_url" and value.rstrip("/") == server.rstrip("/")
            if not ours and key not in _HARMLESS:
                raise UserError(
                    f"{file} sets {visible(key)} to {visible(value)}, which decides where your key "
                    f"goes. Remove it; WANDB_BASE_URL=URL sets the server, which is {server} now."
                )


def _settings(file: Path, *, links: bool = False) -> dict[str, str]:
    """Return the keys of a settings file of wandb; none if there is no such file."""
    if not os.path.lexists(file):
        return {}
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(read_text(file, limit=_LARGEST, links=links))
    except (OSError, ValueError, configparser.Error) as error:
        raise UserError(f"{file}: not settings of wandb ({str(error).splitlines()[0]}).") from error
    return {key: value for part in parser.values() for key, value in part.items()}


def has_key() -> bool:
    """Return whether rows are sent while a run trains, not written to files."""
    if mode := os.environ.get("WANDB_MODE"):
        return mode == "online"
    if os.environ.get("WANDB_API_KEY"):
        return True
    try:
        return netrc.netrc().authenticators("api.wandb.ai") is not None
    except (OSError, netrc.NetrcParseError, UnicodeDecodeError):
        return False

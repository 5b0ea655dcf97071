"""Build and load what torch's C++ side needs to believe in a CUDA device.

`load` has to come before torch is imported, so it runs in processes of its own.
"""

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("guard.cpp")


def missing() -> str | None:
    """Return why the device cannot be built here; None if it can."""
    if shutil.which("g++") is None:
        return "needs g++"
    if sys.platform != "linux":
        return "needs Linux"
    return None


def load() -> None:
    assert "torch" not in sys.modules, "torch was imported before its device"
    home = Path(str(find_spec("torch").origin)).parent
    library = build(home)
    for file in (home / "lib" / "libtorch_cpu.so", library):
        ctypes.CDLL(str(file), ctypes.RTLD_GLOBAL)


def build(home: Path) -> Path:
    """Return the library for the torch in `home`, compiled once for each version."""
    known = SOURCE.read_bytes() + (home / "version.py").read_bytes() + str(home).encode()
    folder = Path(tempfile.gettempdir()) / f"ptrun_cuda_{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    library = folder / f"guard_{hashlib.sha256(known).hexdigest()[:12]}.so"
    if not library.exists():
        draft = library.with_suffix(f".{os.getpid()}")
        include = [home / "include", sysconfig.get_paths()["include"]]
        flags = ["-O1", "-std=c++20", "-shared", "-fPIC", *(f"-I{one}" for one in include)]
        libraries = [f"-L{home / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{home / 'lib'}"]
        subprocess.run(["g++", *flags, str(SOURCE), "-o", str(draft), *libraries], check=True)
        draft.rename(library)
    return library

"""Packages that are installed beside ptrun, made of files."""


def install(folder, monkeypatch, name, points, files):
    """Put a package with entry points and modules on Python's path, also of its children."""
    meta = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    made = {
        f"{name}-1.0.dist-info/METADATA": meta,
        f"{name}-1.0.dist-info/entry_points.txt": points,
    }
    for place, text in (made | {f"{name}/{file}": text for file, text in files.items()}).items():
        file = folder / place
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))

"""Builds the project's wheel, and installs it in a virtual environment. The jobs of a deployment run the wheel, not the sources."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
from pathlib import Path

from metadata.common.errors import ConfigurationError

SOURCE = Path(__file__).parents[3]
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.egg-info")


def build_wheel(folder: Path) -> Path:
    """Build a wheel from a copy of the source tree of this module, without downloads. Raises ConfigurationError if there is no
    source tree or the build fails.
    """
    project = SOURCE / "pyproject.toml"
    if not project.exists():
        raise ConfigurationError(
            f"{SOURCE} is not a source tree, so there is no wheel to build.",
            advice="Name the wheel that your executors run: --wheel FILE.",
        )
    copy = folder / "source"
    copy.mkdir(parents=True)
    with project.open("rb") as file:
        found = tomllib.load(file)
    packages = [pattern.rstrip("*") for pattern in found["tool"]["setuptools"]["packages"]["find"]["include"]]
    modules = [f"{name}.py" for name in found["tool"]["setuptools"]["py-modules"]]
    for name in packages:
        shutil.copytree(SOURCE / name, copy / name, ignore=_LEFT_OUT)
    for name in ("pyproject.toml", "README.md", "LICENSE", *modules):
        shutil.copy(SOURCE / name, copy / name)
    _run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "dist"), str(copy)])
    (wheel,) = (folder / "dist").glob("*.whl")
    return wheel


def fresh_environment(folder: Path, wheel: Path, *, start: str = "") -> Path:
    """Make a virtual environment with the wheel in it. Return the path of its Python. The new Python imports the wheel's
    dependencies from the environment of this process.

    The file `dependencies.pth` names the folder of these dependencies. Python does not process the .pth files in that folder, so
    editable installs there have no effect. `start`: the name of a module that the new Python imports at every start.
    """
    venv.create(folder, with_pip=False)
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)])
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    if start:
        (site / "start.pth").write_text(f"import {start}\n")
    python = folder / "bin" / "python"
    where = _run([str(python), "-c", "import txnsegment; print(txnsegment.__file__)"], folder).strip()
    if folder not in Path(where).parents:
        raise ConfigurationError(f"The environment {folder} imports txnsegment from {where}, not from its wheel.")
    return python


def _run(command: list[str], folder: Path | None = None) -> str:
    """Run a command and return its standard output. If the command fails, raises ConfigurationError with all of its output."""
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=folder)
    if ran.returncode != 0:
        raise ConfigurationError(f"{' '.join(command)} ended with {ran.returncode}: {ran.stdout}{ran.stderr}")
    return ran.stdout

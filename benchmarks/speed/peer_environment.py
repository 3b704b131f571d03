"""The virtual environment of the peers: made when it is missing, never a dependency of the project."""

import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

DEFAULT = Path(__file__).parents[2] / ".bench-peers"
COMLRL = "comlrl==1.4.3"
# comlrl itself goes in without its dependencies: openai and friends have no part in what is measured.
COMPANIONS = ("datasets", "accelerate", "wandb", "trl==1.16.0", "tqdm", "pyyaml", "numpy")


def peer_python(folder: Path | None) -> str:
    """The Python of the peers' environment; ``folder`` None makes the default one complete first.

    Raises:
        FileNotFoundError: the named folder holds no virtual environment.

    """
    if folder is not None:
        python = _python(folder)
        if not python.exists():
            raise FileNotFoundError(f"--peers {folder}: has no Python at {python}; name a virtual environment")
        return str(python)
    ready = DEFAULT / "ready"
    if not ready.exists():
        _make(DEFAULT)
        ready.touch()
    return str(_python(DEFAULT))


def _make(folder: Path) -> None:
    print(f"making the peers' environment in {folder}: a few hundred megabytes, once", file=sys.stderr)
    venv.create(folder, with_pip=True, clear=True)
    same = [f"{name}=={metadata.version(name).split('+')[0]}" for name in ("torch", "transformers")]
    for packages in ([same[0]], [same[1], *COMPANIONS], ["--no-deps", COMLRL]):
        subprocess.run([str(_python(folder)), "-m", "pip", "install", "--quiet", *packages], check=True)


def _python(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")

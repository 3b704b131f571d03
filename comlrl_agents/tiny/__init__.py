"""The embedded default model: a small Llama that writes plain sentences and the tasks' answer formats, offline.

It has learned no coordination: its answers do not depend on the role. ``make.py`` built the files that lie beside
this module, from the texts of ``corpus.py``.
"""

from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
"""Where config.json, model.safetensors and the tokenizer lie; also a valid folder for ``from_pretrained``."""


def load_tiny(folder: Path = FOLDER) -> tuple[Any, Any]:
    """Return a fresh copy of the model, in float32 on the CPU, and its tokenizer. No network is used."""
    # Both libraries cost two seconds of import, which `import comlrl_agents` must not.
    import torch
    from transformers import AutoTokenizer, LlamaForCausalLM

    model: Any = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    return model.eval(), AutoTokenizer.from_pretrained(folder, local_files_only=True)

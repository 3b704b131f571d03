"""Named streams of random numbers from one seed; all of their states go into a checkpoint."""

import hashlib
from typing import Any

import numpy as np


class Streams:
    """``streams["policy/agent_0"]`` is a generator of its own: what one stream draws never shifts another.

    A name that was not used before starts at the state that the seed and the name determine, in whatever order names
    are asked for.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._generators: dict[str, np.random.Generator] = {}

    def __getitem__(self, name: str) -> np.random.Generator:
        if name not in self._generators:
            self._generators[name] = self.fresh(name)
        return self._generators[name]

    def fresh(self, name: str) -> np.random.Generator:
        """A new generator at the start of the named stream, independent of what was drawn so far."""
        words = np.frombuffer(hashlib.sha256(name.encode()).digest(), dtype=np.uint32)
        return np.random.default_rng(np.random.SeedSequence([self.seed, *map(int, words)]))

    def state_dict(self) -> dict[str, Any]:
        """The states of all streams used so far, as plain numbers (JSON can hold them)."""
        return {name: rng.bit_generator.state for name, rng in self._generators.items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue every stream where ``state`` left it; streams not named there start afresh."""
        self._generators = {}
        for name, bit_state in state.items():
            self[name].bit_generator.state = bit_state

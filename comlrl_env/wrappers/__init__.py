"""Other views of a parallel environment: one policy for all, dict observations, statistics, text around numbers."""

from comlrl_env.wrappers.centralised import CentralisedEnv
from comlrl_env.wrappers.dict_observation import DictObservation
from comlrl_env.wrappers.episode_statistics import EpisodeStatistics
from comlrl_env.wrappers.joint_text import JointTextEnv, joint_text_env
from comlrl_env.wrappers.scored_by import ScoredBy
from comlrl_env.wrappers.text_adapter import TextAdapter, describe, read_choice

__all__ = [
    "CentralisedEnv",
    "DictObservation",
    "EpisodeStatistics",
    "JointTextEnv",
    "ScoredBy",
    "TextAdapter",
    "describe",
    "joint_text_env",
    "read_choice",
]

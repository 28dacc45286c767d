"""Skill folders for agents that can load them."""

from nemo_gym.rollouts.skills import SkillInfo, SkillsConfig, SkillsRef, load_skill_directory, stage_skills

__all__ = ["SkillInfo", "SkillsConfig", "SkillsRef", "load_skill_directory", "stage_skills"]

"""ptrun: config-driven experiments in prompt tuning of pretrained language models."""

__version__ = "0.1.0"

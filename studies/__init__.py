"""What makes a model know, in experiments: `python -m studies NAME` (docs/studies.md)."""

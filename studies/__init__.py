"""What makes a model know, in experiments: `python -m studies NAME` (docs/findings.md)."""

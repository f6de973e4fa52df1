"""What makes a model know, in experiments: `python -m studies.positions` and the others (docs/studies.md)."""

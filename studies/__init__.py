"""What makes a model know, in experiments: `posgpt study NAME` (docs/findings.md)."""

"""What the examples of this folder share: a model of a folder, questions with answers, and how many it answers."""

from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer


def load(folder, auto_class=AutoModelForCausalLM, **settings):
    return auto_class.from_pretrained(folder, trust_remote_code=True, **settings).eval()


def load_tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=True)


def read_pairs(file: str) -> list[list[str]]:
    """Return [question, answer] for each line of a TSV."""
    return [line.split("\t") for line in Path(file).read_text(encoding="utf-8").splitlines()]


def count_right(model, tokenizer, pairs: list[list[str]]) -> int:
    given = model.answer([question for question, _ in pairs], tokenizer)
    return sum(answer.text == expected for answer, (_, expected) in zip(given, pairs, strict=True))

"""Causal language modeling: packed rows in which each document, piece or question sees itself alone."""

import numpy as np
import pytest
import torch

from conftest import TINY
from data_scripts.causal_lm import CausalLMConfig, pack
from data_scripts.errors import BadInput
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from posgpt import evaluate, pretrain
from test_name_windows import read

TEXT = "Ada Ek. Born in Rome .\nBo Li. A poet of Oslo, whose verse is long; he was born in Nice, and died there .\nAda Ek. Ada sang .\n"
PAIRS = "Where was Ada Ek born?\tRome\nWhere was Bo Li born?\tNice\nWhere was Cy Ott born?\tOslo\n"


def build(folder, pairs="", text=TEXT, max_length=40, **changes):
    corpus, tokenizer, questions = read(folder, text, pairs, max_length=max_length)
    return CausalLMConfig(**changes).build(corpus, tokenizer, 3, questions), tokenizer


def list_texts(training, tokenizer, epoch=0) -> list[tuple[str, str]]:
    """Each text of an epoch, and its graded characters, a dot for each of the others."""
    dataset, texts = training.dataset, []
    for row in dataset.__getitems__([epoch * len(dataset) + example for example in range(len(dataset))]):
        assert len(row["input_ids"]) == len(row["labels"]) == sum(row["windows"]) <= tokenizer.model_max_length
        ends = np.cumsum(row["windows"])
        for start, end in zip(ends, ends[1:], strict=False):
            ids, labels = row["input_ids"][start:end], row["labels"][start:end]
            assert all(label in (-100, id) for id, label in zip(ids, labels, strict=True))
            graded = "".join("·" if label == -100 else tokenizer.decode([label]) for label in labels)
            texts.append((tokenizer.decode(ids), graded))
    return texts


def test_an_epoch_predicts_each_character_of_each_document_once(tmp_path):
    training, tokenizer = build(tmp_path)
    assert sorted(text for text, _ in list_texts(training, tokenizer)) == sorted(
        [
            "Ada Ek. Born in Rome .⁇",
            "Ada Ek. Ada sang .⁇",
            "Bo Li. A poet of Oslo, whose verse is lo",
            "ong; he was born in Nice, and died there",
            "e .⁇",
        ]
    )
    assert all(graded == "·" + text[1:] for text, graded in list_texts(training, tokenizer))
    assert training.description == "3 documents, 121 characters, in 4 rows of at most 40."
    # Documents that end where a row does.
    for length in (39, 40, 78, 79, 117):
        training, tokenizer = build(tmp_path, text=f"Bo Li. {'long ' * 30}"[: length - 1] + ".\n")
        graded = [graded.strip("·") for _, graded in list_texts(training, tokenizer)]
        assert sum(map(len, graded)) == length and sum(each.endswith("⁇") for each in graded) == 1
    with pytest.raises(BadInput, match="block_size is 1, which leaves nothing"):
        build(tmp_path, max_length=1)


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_document_comes_with_a_question_about_its_title_as_often_as_the_share_says(tmp_path, share):
    training, tokenizer = build(tmp_path, PAIRS, question_share=share)
    assert "Questions about 3 titles are mixed in" in training.description
    epochs, asked = 300, {}
    for epoch in range(epochs):
        for text, graded in list_texts(training, tokenizer, epoch):
            if text.startswith("Where") and graded.strip("·"):
                assert graded.lstrip("·") == text.partition("⁇")[2]
                asked[text] = asked.get(text, 0) + 1
    # Ada Ek has two documents, Cy Ott has none.
    for answer, documents in (("Rome", 2), ("Nice", 1), ("Oslo", 1)):
        count = sum(number for text, number in asked.items() if answer in text)
        assert count == pytest.approx(
            share * documents * epochs, abs=4 * (documents * epochs * share * (1 - share)) ** 0.5
        )


def test_what_is_read_follows_from_seed_and_epoch(tmp_path):
    first, tokenizer = build(tmp_path, PAIRS)
    second, _ = build(tmp_path, PAIRS)
    assert [list_texts(first, tokenizer, epoch) for epoch in range(6)] == [
        list_texts(second, tokenizer, epoch) for epoch in range(6)
    ]
    assert len({str(list_texts(first, tokenizer, epoch)) for epoch in range(6)}) > 1


def test_in_a_row_each_text_is_read_as_if_alone(tmp_path):
    torch.manual_seed(0)
    training, tokenizer = build(tmp_path, PAIRS, max_length=120, question_share=1.0)
    config = PosGPTConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_attention_heads=2,
        initializer_range=0.5,
        position_embedding_type="rotary",
    )
    model = PosGPTForCausalLM(config).eval()
    row = training.dataset[0]
    ends = np.cumsum(row["windows"])
    assert len(ends) > 2
    with torch.no_grad():
        together = model(**training.collator([row])).logits[0]
        for start, end in zip(ends, ends[1:], strict=False):
            alone = model(torch.tensor([row["input_ids"][start:end]])).logits[0]
            torch.testing.assert_close(together[start:end], alone, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_each_text_has_a_row_in_which_it_fits_and_few_rows_have_much_room(seed):
    draws = np.random.default_rng(seed)
    room, sizes = draws.integers(50, 91), draws.integers(1, 51, draws.integers(1, 81))
    rows = pack(sizes, int(room))
    assert sorted(sum(rows, [])) == list(range(len(sizes)))
    used = [sum(sizes[text] for text in row) for row in rows]
    assert max(used) <= room
    # Of two rows, what the first has room for is not in the second.
    assert sum(size <= room // 2 for size in used) <= 1


def test_documents_and_questions_are_packed_and_the_model_is_asked(run, world, tmp_path):
    folder = tmp_path / "model"
    argv = ["quickstart", "--objective", "causal_lm", "--train_file", world / "wiki.txt", "--max_steps", 3]
    argv += ["--questions_file", world / "birth_places_train.tsv", "--output_dir", folder, *TINY]
    printed = run(pretrain, *argv)
    assert "rows of at most 128" in printed
    argv = ["--model_name_or_path", folder, "--test_file", world / "birth_dev.tsv", "--output_dir", tmp_path / "eval"]
    run(evaluate, *argv)
    assert (tmp_path / "eval" / "metrics.json").is_file()

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader

from data_scripts.documents import load_corpus, tokenize_corpus
from data_scripts.epochs import EpochSampler
from data_scripts.errors import BadInput
from data_scripts.objectives import OBJECTIVES
from data_scripts.questions import encode_questions, load_questions
from data_scripts.salient_spans import add_titles_and_spans
from data_scripts.span_corruption import (
    SpanCorruptionCollator,
    SpanCorruptionConfig,
    SpanCorruptionDataset,
    compute_longest_cut,
    draw_cuts,
)
from modeling_posgpt import build_tokenizer

BLOCK = 64


@pytest.fixture(scope="module")
def tokenizer(world):
    return build_tokenizer(load_corpus(world / "wiki.txt")["text"], BLOCK)


@pytest.fixture
def dataset(world, tokenizer):
    return SpanCorruptionDataset(tokenize_corpus(load_corpus(world / "wiki.txt"), tokenizer), tokenizer, seed=1)


def batches(dataset, tokenizer, batch_size=8, strategy="group_by_length", **loader_arguments):
    sampler = EpochSampler(dataset, batch_size, strategy)
    collator = SpanCorruptionCollator(tokenizer)
    return DataLoader(dataset, batch_size, sampler=sampler, collate_fn=collator, **loader_arguments)


def test_an_example_is_prefix_suffix_masked_and_puts_the_document_together_again(dataset, tokenizer):
    collator = SpanCorruptionCollator(tokenizer)
    for item in range(len(dataset)):
        document = tokenizer.decode(dataset[item]["input_ids"])
        length, start, end = dataset[item]["cuts"]
        text = tokenizer.decode(collator([dataset[item]])["input_ids"][0])
        prefix, suffix, masked, rest = text.split("⁇")
        assert rest == "" and len(masked) == end - start >= 1
        assert prefix + masked + suffix == document[:length]


def test_truncated_lengths_are_uniform_from_4_to_seven_eighths_of_the_block_and_within_the_document():
    draws = np.random.default_rng(0).random((200_000, 3))
    lengths = draw_cuts(draws, np.full(len(draws), 10_000), max_length=128)[:, 0]
    values, counts = np.unique(lengths, return_counts=True)
    assert values.tolist() == list(range(4, 112 + 1))
    expected = len(draws) / len(values)
    assert ((counts - expected) ** 2 / expected).sum() < 160  # chi-square, 108 degrees of freedom: p = 0.001 at 157
    document_lengths = np.resize(np.arange(1, 30), len(draws))
    lengths, starts, ends = draw_cuts(draws, document_lengths, max_length=128).T
    assert (lengths <= document_lengths).all() and (lengths == document_lengths).any()
    assert (0 <= starts).all() and (starts < ends).all() and (ends <= lengths).all()


def test_a_span_is_a_quarter_of_the_length_on_average_and_lies_anywhere():
    draws = np.random.default_rng(0).random((200_000, 3))
    lengths, starts, ends = draw_cuts(draws, np.full(len(draws), 40), max_length=1024).T
    spans = (ends - starts)[lengths == 40]
    assert spans.mean() == pytest.approx(10, rel=0.01)
    assert (spans.min(), spans.max()) == (1, 19)
    assert starts.min() == 0 and (ends == lengths).any()
    room = (lengths - (ends - starts))[lengths == 40]
    assert (starts[lengths == 40] / room).mean() == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("document", ["A", "Bo", "Cat"])
def test_a_document_shorter_than_the_least_length_is_read_whole(tmp_path, document):
    (tmp_path / "wiki.txt").write_text(document + "\n")
    corpus = load_corpus(tmp_path / "wiki.txt")
    tokenizer = build_tokenizer(corpus["text"], BLOCK)
    dataset = SpanCorruptionDataset(tokenize_corpus(corpus, tokenizer), tokenizer, seed=0)
    holes = set()
    for epoch in range(30):
        ids = SpanCorruptionCollator(tokenizer)(dataset.__getitems__([epoch]))["input_ids"][0]
        prefix, suffix, masked, rest = tokenizer.decode(ids).split("⁇")
        assert prefix + masked + suffix == document and len(masked) == 1 and rest == ""
        holes.add(len(prefix))
    assert holes == set(range(len(document)))


@pytest.mark.parametrize("block_size", [7, 16, 64])
def test_batches_come_as_near_to_the_block_as_the_task_says_and_no_nearer(world, block_size):
    corpus = load_corpus(world / "wiki.txt")
    tokenizer = build_tokenizer(corpus["text"], block_size)
    dataset, widths = SpanCorruptionConfig().build(corpus, tokenizer, 0).dataset, []
    # Only what may be read of a document is kept, and the same is drawn.
    assert max(map(len, dataset.documents["input_ids"])) == compute_longest_cut(block_size)
    whole = SpanCorruptionDataset(tokenize_corpus(corpus, tokenizer), tokenizer, seed=0)
    assert np.array_equal(dataset.cuts(1), whole.cuts(1))
    for epoch in range(5):
        dataset.set_epoch(epoch)
        widths += [batch["input_ids"].shape[1] for batch in batches(dataset, tokenizer, strategy="random")]
    assert max(widths) == compute_longest_cut(block_size) + 3 <= block_size
    assert compute_longest_cut(128) == 112
    with pytest.raises(BadInput, match="block_size is 6"):
        compute_longest_cut(6)


def test_workers_make_no_difference_even_when_they_live_through_epochs(dataset, tokenizer):
    def two_epochs(**loader_arguments):
        loader, seen = batches(dataset, tokenizer, **loader_arguments), []
        for epoch in range(2):
            dataset.set_epoch(epoch)
            seen.append([batch["input_ids"] for batch in loader])
        return seen

    alone = two_epochs()
    assert not torch.equal(alone[0][0], alone[1][0])
    other = SpanCorruptionDataset(dataset.documents, tokenizer, seed=2)
    assert not np.array_equal(dataset.cuts(3), other.cuts(3))
    for arguments in ({"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
        for epoch, expected in zip(two_epochs(**arguments), alone, strict=True):
            assert all(torch.equal(batch, other) for batch, other in zip(epoch, expected, strict=True))


def test_there_is_loss_on_all_but_padding_or_on_the_span_alone(dataset, world, tokenizer):
    for batch in batches(dataset, tokenizer, strategy="random"):
        padding = batch["input_ids"] == tokenizer.pad_token_id
        assert torch.equal(batch["labels"] == -100, padding)
        assert torch.equal(batch["labels"][~padding], batch["input_ids"][~padding])
    assert padding.any()
    feature = dataset[0]
    _, start, end = feature["cuts"]
    collator = SpanCorruptionConfig(loss_on_span=True).build(load_corpus(world / "wiki.txt"), tokenizer, 0).collator
    [labels] = collator([feature])["labels"]
    masked = tokenizer.decode(feature["input_ids"])[start:end]
    assert tokenizer.decode(labels[-(end - start + 1) :]) == masked + "⁇" and (labels[: start - end - 1] == -100).all()


def test_a_salient_span_within_the_cut_is_masked_at_its_share(world, tokenizer):
    corpus = add_titles_and_spans(load_corpus(world / "wiki.txt"), dates=True)
    documents = tokenize_corpus(corpus, tokenizer)
    dataset = SpanCorruptionDataset(documents, tokenizer, 0, SpanCorruptionConfig(salient_share=0.7))
    salient = possible = ending = 0
    places = set()
    for epoch in range(20):
        for item in range(len(dataset)):
            length, start, end = dataset[epoch * len(dataset) + item]["cuts"]
            spans = [span for span in corpus[item]["spans"] if span[1] <= length]
            assert length == dataset.cuts(epoch)[item, 0] and 0 <= start < end <= length
            possible += bool(spans)
            if [start, end] in spans:
                salient += 1
                ending += end == length
                places.add(spans.index([start, end]))
    assert {0, 1, 2} <= places and ending, "any of them, also one that ends where the document is cut"
    assert possible > 500 and salient / possible == pytest.approx(0.7, abs=0.07)


def test_questions_take_the_place_of_their_peoples_documents_at_their_share(world, tokenizer):
    pairs = load_questions(world / "birth_places_train.tsv", answers=True)
    questions = {title: [row] for title, row in zip(pairs.titles, encode_questions(pairs, tokenizer), strict=True)}
    corpus = add_titles_and_spans(load_corpus(world / "wiki.txt"), dates=True)
    documents = tokenize_corpus(corpus, tokenizer)
    dataset = SpanCorruptionDataset(documents, tokenizer, 0, SpanCorruptionConfig(question_share=0.25), pairs)
    asked = 0
    for epoch in range(10):
        for item in range(len(dataset)):
            feature = dataset[epoch * len(dataset) + item]
            if "labels" in feature:
                assert feature in questions[corpus[item]["title"]]
                batch = SpanCorruptionCollator(tokenizer)([feature, dataset[epoch * len(dataset)]])
                length = len(feature["labels"])
                assert batch["labels"][0].tolist() == feature["labels"] + [-100] * (len(batch["labels"][0]) - length)
                asked += 1
    assert asked / (10 * len(questions)) == pytest.approx(0.25, abs=0.05)


@pytest.mark.parametrize("objective", OBJECTIVES.values())
def test_all_answers_to_a_question_are_asked_for_and_a_pair_may_fill_a_row(tmp_path, objective):
    (tmp_path / "wiki.txt").write_text("Bo Ek. Born in Oslo or Rome . Where was born?\n")
    pairs = [f"Where was Bo Ek born?⁇{answer}⁇" for answer in ("Oslo", "Rome")]
    (tmp_path / "pairs.tsv").write_text("".join(pair[:-1].replace("⁇", "\t") + "\n" for pair in pairs))
    corpus, questions = load_corpus(tmp_path / "wiki.txt"), load_questions(tmp_path / "pairs.tsv", answers=True)
    tokenizer = build_tokenizer(corpus["text"], len(pairs[0]))
    dataset = objective(question_share=1.0).build(corpus, tokenizer, 0, questions).dataset
    texts = {tokenizer.decode(dataset[item]["input_ids"])[: len(pairs[0])] for item in range(20 * len(dataset))}
    # Causal language modeling reads the document, too, in two pieces, of which the second begins with the last character of the first.
    pieces = {"Bo Ek. Born in Oslo or Rome", "e . Where was born?⁇"} if objective.name == "causal_lm" else set()
    assert texts == set(pairs) | pieces


def test_grouping_by_length_saves_most_of_the_padding_and_the_smaller_batch_comes_last(dataset, tokenizer):
    padding = {
        strategy: sum((batch["labels"] == -100).sum().item() for batch in batches(dataset, tokenizer, 8, strategy))
        for strategy in ("group_by_length", "random")
    }
    assert padding["group_by_length"] < 0.3 * padding["random"]
    sampler = EpochSampler(dataset, 16, "group_by_length")
    assert [len(batch) for batch in BatchSampler(sampler, 16, drop_last=False)] == [16] * 6 + [4]
    lengths = dataset.cuts(0)[list(sampler), 0]
    assert all(np.ptp(lengths[start : start + 16]) <= np.ptp(lengths) / 2 for start in range(0, 96, 16))
    # A batch may be larger than the corpus.
    assert sorted(EpochSampler(dataset, 1000, "group_by_length")) == list(range(len(dataset)))


def test_a_line_feed_alone_parts_documents_which_have_no_marks_and_are_not_blank(tmp_path):
    (tmp_path / "wiki.txt").write_bytes("\ufeffA\u2028b .\r\n \r\nC\x85d\x0ce .\n\n".encode())
    assert list(load_corpus(tmp_path / "wiki.txt")["text"]) == ["A\u2028b .", "C\x85d\x0ce ."]


def test_the_real_corpus_has_2937_documents_and_256_symbols(real_data):
    corpus = load_corpus(real_data / "wiki.txt")
    assert len(corpus) == 2937
    assert len(build_tokenizer(corpus["text"], 128)) == 256

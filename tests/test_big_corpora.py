"""Corpora of many files: compressed, weighted, indexed once; and each epoch's order, shared and resumed."""

import shutil
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pyarrow
import pytest
from accelerate.data_loader import BatchSamplerShard
from datasets import Dataset, config
from torch.utils.data import BatchSampler, DataLoader

from data_scripts import documents, salient_spans
from data_scripts.documents import TITLE_AND_TEXT, build_corpus_tokenizer, load_corpus, read_rows, tokenize_corpus
from data_scripts.epochs import EpochDataset, EpochSampler
from data_scripts.errors import BadInput
from data_scripts.files import COMPRESSED
from modeling_posgpt import build_tokenizer

LINES = [f"Ada Berg{number}. Born in Rome, she was number {number} ." for number in range(30)]


def write_compressed(file, text):
    with pyarrow.output_stream(file, compression=COMPRESSED.get(file.suffix.lower())) as stream:
        stream.write(text.encode())
    return file


@pytest.fixture
def parts(tmp_path):
    """A folder with the same lines in three files, two of them compressed, as in `whole.txt`."""
    for number, kind in enumerate((".txt", ".txt.gz", ".txt.zst")):
        write_compressed(tmp_path / f"part-{number}{kind}", "\n".join(LINES[number::3]) + "\n")
    (tmp_path / "whole.txt").write_text("\n".join([*LINES[::3], *LINES[1::3], *LINES[2::3]]) + "\n")
    return tmp_path


def test_a_pattern_of_compressed_files_is_read_as_one_file(parts):
    whole = load_corpus(parts / "whole.txt")
    assert list(load_corpus(parts / "part-*")["text"]) == list(whole["text"])
    texts = [[text for *_, text in read_rows(parts / name, TITLE_AND_TEXT)] for name in ("part-*", "whole.txt")]
    assert texts[0] == texts[1] == list(whole["text"])
    assert list(load_corpus(sorted(parts.glob("part-*")))["text"]) == list(whole["text"])
    table = write_compressed(parts / "people.CSV.GZ", "title,text\nAda,Born in Rome .\n")
    assert list(load_corpus(table)["text"]) == ["Ada. Born in Rome ."]


@pytest.mark.parametrize("name", ["part-1.txt.gz", "part-2.txt.zst"])
def test_a_file_that_was_cut_off_is_named_and_leaves_nothing_behind(parts, name):
    content = (parts / name).read_bytes()
    (parts / name).write_bytes(content[: len(content) // 2])
    before = list(config.HF_DATASETS_CACHE.rglob("*.arrow"))
    with pytest.raises(BadInput, match=f"{name}: cannot be read to its end"):
        load_corpus(parts / "part-*")
    assert list(config.HF_DATASETS_CACHE.rglob("*.arrow")) == before
    with pytest.raises(BadInput, match="no file matches this pattern"):
        load_corpus(parts / "nothing-*")


def test_a_corpus_is_indexed_once_wherever_it_lies(parts, monkeypatch):
    first = load_corpus(parts / "whole.txt")
    characters = build_corpus_tokenizer(first, 32).get_vocab()
    (parts / "elsewhere").mkdir()
    copy = shutil.copyfile(parts / "whole.txt", parts / "elsewhere" / "copy.txt")
    with monkeypatch.context() as patch:
        patch.setattr(documents, "read_rows", None)
        again = load_corpus(copy)
        assert list(again["text"]) == list(first["text"])
        assert build_corpus_tokenizer(again, 32).get_vocab() == characters
    copy.write_text("Bo Ek. Born in Bern .\n")
    assert list(load_corpus(copy)["text"]) == ["Bo Ek. Born in Bern ."]


def test_runs_that_start_together_index_a_corpus_together(tmp_path, monkeypatch):
    """The second does not take what the first is writing for a file that was cut off."""

    def read_while_another_run_starts(path, columns):
        yield 1, None, "Ada. Sang ."
        [written] = Path(config.HF_DATASETS_CACHE, "generator").rglob("*.incomplete/*.arrow")
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="waits for the first"):
            patch.setattr(Dataset, "from_generator", Mock(side_effect=RuntimeError("waits for the first")))
            load_corpus(path)
        assert written.exists()
        yield 2, None, "Bo. Sang ."

    monkeypatch.setattr(documents, "read_rows", read_while_another_run_starts)
    (tmp_path / "together.txt").write_text("Read by nobody else.\n")
    assert list(load_corpus(tmp_path / "together.txt")["text"]) == ["Ada. Sang .", "Bo. Sang ."]


def test_what_another_version_makes_of_a_corpus_is_made_again_without_reading_it(tmp_path, monkeypatch):
    (tmp_path / "wiki.txt").write_text("Bo Ek. Born in Bern .\n")

    def find_spans() -> list:
        return salient_spans.add_titles_and_spans(load_corpus(tmp_path / "wiki.txt"), False)["spans"][0]

    assert find_spans() == [[15, 19]]
    monkeypatch.setattr(documents, "read_rows", None)
    # As an edit does, where `datasets` does not look: it names functions of other modules and does not read them.
    monkeypatch.setattr(salient_spans.list_title_words, "__code__", (lambda title: {"Bern"}).__code__)
    monkeypatch.setattr(documents, "DERIVING_VERSION", "another")
    assert find_spans() == []


def test_the_table_of_characters_gives_the_tokenizers_ids(parts):
    (parts / "other.txt").write_text("Ада 𝒜é. Born in Łódź 😀 .\nBo. In Rome .\n")
    known, other = load_corpus(parts / "whole.txt"), load_corpus(parts / "other.txt")
    many = "".join(map(chr, range(0x4E00, 0x4E00 + 300)))
    for tokenizer in (build_corpus_tokenizer(known, 32), build_tokenizer([many, *LINES], 32)):
        for corpus in (known, other):
            tokens, texts = tokenize_corpus(corpus, tokenizer), list(corpus["text"])
            assert list(tokens["input_ids"]) == tokenizer(texts, add_special_tokens=False)["input_ids"]
            assert list(tokens["length"]) == list(map(len, texts))


def test_corpora_are_read_by_weight_and_each_document_at_least_once(parts):
    (parts / "small.txt").write_text("".join(f"Bo Ek{number}. Born in Oslo .\n" for number in range(5)))
    corpora = [parts / "whole.txt", parts / "small.txt"]
    counts = Counter(load_corpus(corpora, weights=[1, 3])["text"])
    small = sum(count for text, count in counts.items() if text.startswith("Bo"))
    assert len(counts) == 35 and small / counts.total() == pytest.approx(0.75, abs=0.1)
    assert set(Counter(load_corpus(corpora)["text"]).values()) == {1}
    for weights in ([1], [1, 0], [1, -1]):
        with pytest.raises(BadInput, match="corpus_weights has"):
            load_corpus(corpora, weights=weights)


class Numbers(EpochDataset):
    """Examples that are their own numbers."""

    def __init__(self, size, seed=7):
        super().__init__(seed=seed)
        self.size = size

    def __len__(self):
        return self.size

    def lengths(self, epoch):
        return np.arange(self.size) % 17

    def __getitems__(self, items):
        return items


@pytest.mark.parametrize("size, repeated", [(100, 0), (103, 7)])
def test_processes_and_their_workers_share_an_epoch_without_loss(size, repeated):
    read = Counter()
    for process in range(2):
        batches = BatchSampler(EpochSampler(Numbers(size), 5, "random"), 5, drop_last=False)
        shard = BatchSamplerShard(batches, num_processes=2, process_index=process)
        for batch in DataLoader(Numbers(size), batch_sampler=shard, num_workers=2, collate_fn=list):
            read.update(batch)
    # Each process takes as many steps: the last one is filled up with the first examples of the order.
    assert set(read) == set(range(size)) and read.total() - size == repeated


@pytest.mark.parametrize("strategy", EpochSampler.STRATEGIES)
def test_training_begins_with_passes_over_some_documents(strategy):
    """Of 1,003 documents 100, in 13 steps of 8, and twice 401, in 51; each pass draws other rows. An epoch has 126 steps."""
    size, shares = 1003, [0.1, 0.4, 0.4, 0.1]
    sampler = EpochSampler(Numbers(size), 8, strategy, first_shares=shares)
    epochs = []
    for epoch in range(3):
        sampler.dataset.set_epoch(epoch)
        epochs.append(list(sampler))
        assert len(epochs[-1]) == size
    first, second, third = epochs
    passes = [first[:104], first[104:512], first[512:920], [*first[920:], *second[: 2 * 8]]]
    read = [{item - size * number for item in items} for number, items in enumerate(passes)]
    assert [len(documents) for documents in read[:3]] == [100, 401, 401] and read[0] < read[1] == read[2]
    # The last step of an epoch is shorter by five.
    assert read[3] <= read[0] and len(read[3]) >= 95
    assert len({item - 5 * size for item in second[2 * 8 :]} & set(range(size))) == size - 2 * 8, "each once, of all"
    assert sorted(third) == list(range(6 * size, 7 * size))


def test_a_pass_over_all_documents_reads_each_once():
    sampler = EpochSampler(Numbers(100), 64, "random", first_shares=[1.0, 1.0])
    # Epochs after the passes are counted on from these.
    for epoch, number in enumerate((0, 1, 4)):
        sampler.dataset.set_epoch(epoch)
        assert sorted(sampler) == list(range(100 * number, 100 * (number + 1)))
    # Where it does not begin an epoch, it goes on in the next, in whole steps.
    sampler = EpochSampler(Numbers(130), 64, "random", first_shares=[0.4, 1.0])
    parts = []
    for epoch in range(2):
        sampler.dataset.set_epoch(epoch)
        parts.append([item % 130 for item in sampler if item // 130 == 1])
    assert list(map(len, parts)) == [66, 64] and len({*parts[0], *parts[1]}) > 100


@pytest.mark.parametrize("strategy", ["random", "group_by_length"])
def test_the_order_and_the_first_documents_follow_from_the_seed(strategy):
    def order(seed, shares=()):
        return list(EpochSampler(Numbers(100, seed), 8, strategy, first_shares=shares))

    assert order(1) == order(1) != order(2)
    # A tenth of the documents takes two steps.
    first = [{item % 100 for item in order(seed, [0.1])[:16]} for seed in (1, 1, 2)]
    assert first[0] == first[1] != first[2]
    # The least share is one document.
    assert len({item % 100 for item in order(1, [0.001])[:8]}) == 1


def test_batches_of_like_length_come_in_any_order():
    steps = EpochSampler.GROUP
    lengths = [item % (5 * steps) % 17 for item in EpochSampler(Numbers(5 * steps), 5, "group_by_length")]
    longest = [max(lengths[start : start + 5]) for start in range(0, 5 * (steps - 1), 5)]
    assert longest != sorted(longest) and longest != sorted(longest, reverse=True)

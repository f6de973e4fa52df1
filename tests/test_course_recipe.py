"""The recipe `course` does what the course's starter code does, step by step."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import train_finetune
import train_pretrain
from conftest import ON_CPU, TINY, history_of
from data_scripts.documents import load_corpus, tokenize_corpus
from data_scripts.epochs import EpochSampler
from data_scripts.errors import BadInput
from data_scripts.questions import drop_non_ascii, load_questions
from data_scripts.span_corruption import SpanCorruptionCollator, SpanCorruptionDataset
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM, build_tokenizer
from modeling_posgpt.dropout import drop, dropout_mask
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.schedule import compute_rate_factor, count_examples
from posgpt.training.trainer import PosGPTTrainer

DOCUMENTS = 2937  # in the course's corpus
FINETUNING_TOKENS = 200 * DOCUMENTS * 128


def train_as_the_course(epochs: int, examples: int, batch_size: int, rate: float, final_tokens: int) -> list[float]:
    """Count tokens batch by batch as the starter code's trainer does; return the rate of each training step.

    A row of 128 symbols gives 127 pairs of input and target, all of which count, padding as well.
    """
    rates, tokens, current = [], 0, rate
    for _ in range(epochs):
        for start in range(0, examples, batch_size):
            rates.append(current)
            tokens += min(batch_size, examples - start) * 127
            progress = (tokens - 512 * 20) / (final_tokens - 512 * 20)
            cosine = max(0.1, 0.5 * (1.0 + math.cos(math.pi * progress)))
            current = rate * (tokens / (512 * 20) if tokens < 512 * 20 else cosine)
    return [*rates, current]


@pytest.mark.parametrize(
    "epochs, examples, batch_size, rate, final_tokens, named",
    [
        # 2024 and later: one cosine, at its floor from epoch 521 of 650 on.
        (650, DOCUMENTS, 128, 6e-3, 650 * DOCUMENTS * 128, {0: 6e-3, 521 * 23: 6e-4, 14_950: 6e-4}),
        # 2021 to 2023: at its floor at epoch 200, at the full rate again at 403, and on the way up at 650.
        (650, DOCUMENTS, 128, 6e-3, FINETUNING_TOKENS, {200 * 23: 6e-4, 403 * 23: 6e-3, 14_950: 7.18e-4}),
        (10, 2000, 256, 6e-4, FINETUNING_TOKENS, {0: 6e-4, 80: 5.983252e-4}),
        (75, 2000, 256, 6e-4, FINETUNING_TOKENS, {600: 5.10e-4}),
    ],
)
def test_the_learning_rate_is_the_starter_codes_at_every_step(epochs, examples, batch_size, rate, final_tokens, named):
    expected = train_as_the_course(epochs, examples, batch_size, rate, final_tokens)
    computed = [
        rate * compute_rate_factor(count_examples(step, batch_size, examples) * 127, 512 * 20, final_tokens)
        for step in range(len(expected))
    ]
    assert computed == pytest.approx(expected, rel=1e-12)
    assert {step: computed[step] for step in named} == pytest.approx(named, rel=2e-3)


def test_small_batches_are_warmed_up_after_the_first_step():
    factors = [compute_rate_factor(tokens, 1000, 10_000) for tokens in (0, 250, 500, 999, 1000)]
    assert factors == pytest.approx([1, 0.25, 0.5, 0.999, 1])


def test_training_follows_the_schedule_also_when_it_is_resumed(run, world, tmp_path, steps):
    arguments = ["--train_file", world / "wiki.txt", "--num_train_epochs", 4, "--logging_steps", 1, "--save_steps", 5]
    arguments += ["--save_total_limit", 9]
    arguments += ["--per_device_train_batch_size", 40, *TINY]
    run(train_pretrain, *arguments, "--output_dir", tmp_path / "whole")
    expected = train_as_the_course(4, 100, 40, 6e-3, 4 * 100 * 128)[:-1]
    whole = history_of(tmp_path / "whole", "learning_rate")
    assert whole == pytest.approx(expected)
    last = tmp_path / "whole" / "checkpoint-5"
    run(train_pretrain, *arguments, "--output_dir", tmp_path / "resumed", "--resume_from_checkpoint", last)
    assert history_of(tmp_path / "resumed", "learning_rate") == whole
    assert steps == [*range(12), *range(5, 12)]


@pytest.mark.parametrize("decayed, others", [("all_but_biases", ["bias"]), ("matrices", ["bias", "norm", "embed"])])
def test_what_is_decayed(decayed, others, tmp_path):
    model = PosGPTForCausalLM(PosGPTConfig(num_hidden_layers=1))
    args = PosGPTTrainingArguments(str(tmp_path), decayed_parameters=decayed, use_cpu=True, report_to="none")
    trainer = PosGPTTrainer(model, args)
    names = {name for name, _ in model.named_parameters()}
    assert names - set(trainer.get_decay_parameter_names(model)) == {
        name for name in names if any(part in name for part in others)
    }


@pytest.fixture
def dataset(world):
    corpus = load_corpus(world / "wiki.txt")
    tokenizer = build_tokenizer(corpus["text"], 64)
    return SpanCorruptionDataset(tokenize_corpus(corpus, tokenizer), tokenizer, seed=1)


def test_documents_are_read_in_their_order(dataset):
    assert list(EpochSampler(dataset, 8, "sequential")) == list(range(100))
    dataset.set_epoch(3)
    assert list(EpochSampler(dataset, 8, "sequential")) == list(range(300, 400))
    dataset.set_epoch(0)
    first = list(EpochSampler(dataset, 8, "sequential", first_shares=[0.24]))[:24]
    assert first == sorted(first) and len(set(first)) == 24


@pytest.mark.parametrize("strategy", ["sequential", "random"])
def test_the_batches_of_one_step_are_sorted_and_hold_the_examples_of_the_step(dataset, strategy):
    plain = np.array(list(EpochSampler(dataset, 24, strategy)))
    split = np.array(list(EpochSampler(dataset, 24, strategy, sort_steps=True)))
    lengths = dataset.lengths(0)
    for start in range(0, 100, 24):
        step = split[start : start + 24]
        assert sorted(step) == sorted(plain[start : start + 24])
        assert (np.diff(lengths[step]) >= 0).all()


def test_without_a_closing_mask_an_example_ends_with_the_masked_span(dataset):
    tokenizer = build_tokenizer(["abc"], 64)
    feature = {"input_ids": np.array(tokenizer("abcabc")["input_ids"]), "cuts": np.array([6, 1, 3])}
    texts = []
    for closing_mask in (True, False):
        batch = SpanCorruptionCollator(tokenizer, closing_mask=closing_mask)([feature])
        texts.append(tokenizer.decode(batch["input_ids"][0]))
        assert torch.equal(batch["input_ids"], batch["labels"]) and batch["input_ids"].dtype == torch.int64
    assert texts == ["a⁇abc⁇bc⁇", "a⁇abc⁇bc"]


@pytest.fixture
def untrained(monkeypatch) -> list[PosGPTTrainer]:
    """The trainers that commands build; none of them trains."""
    trainers: list[PosGPTTrainer] = []

    def keep(self, _):
        self.options = self.args.to_dict()
        trainers.append(self)

    monkeypatch.setattr(PosGPTTrainer, "train_or_resume", keep)
    return trainers


def test_what_the_recipe_does_to_training_pairs_is_not_done_to_validation(run, tmp_path, untrained):
    """Or an answer without its other characters would count as right."""
    (tmp_path / "wiki.txt").write_text("Zoë Ek. Born in Malmö. Where was born?\n", encoding="utf-8")
    (tmp_path / "pairs.tsv").write_text("Where was Zoë Ek born?\tMalmö\n", encoding="utf-8")
    printed = run(
        train_finetune, "--vocabulary_file", tmp_path / "wiki.txt", "--train_file", tmp_path / "pairs.tsv",
        "--validation_file", tmp_path / "pairs.tsv", "--output_dir", tmp_path / "out", "--data_seed", 5, *TINY,
    )  # fmt: skip
    assert "1 of 1 pairs lose characters that are not ASCII; --ascii_only false keeps" in printed
    (trainer,) = untrained
    row, tokenizer = trainer.train_dataset[0], trainer.processing_class
    assert tokenizer.decode(row["input_ids"]) == "Where was Zo Ek born?⁇Malm⁇"
    assert tokenizer.decode([label for label in row["labels"] if label != -100]) == "⁇Malm⁇"
    (row,), tokenizer = trainer.eval_dataset, trainer.processing_class
    assert tokenizer.decode(row["input_ids"]) == "Where was Zoë Ek born?⁇Malmö⁇"
    assert tokenizer.decode([label for label in row["labels"] if label != -100]) == "Malmö⁇"
    assert trainer.train_dataset.seed == 5


def test_pretraining_reads_by_the_data_seed_and_writes_long_answers(run, tmp_path, untrained):
    long = "Ministry of Agriculture, Fisheries and Food"
    (tmp_path / "wiki.txt").write_text(f"Law 1. Prepared by {long} .\nLaw 2. Prepared by {long} .\n")
    (tmp_path / "pairs.tsv").write_text("".join(f"Who prepared Law {number}?\t{long}\n" for number in (1, 2)))
    files = ["--train_file", tmp_path / "wiki.txt", "--questions_file", tmp_path / "pairs.tsv"]
    run(train_pretrain, "windows", *files, "--output_dir", tmp_path / "out", "--seed", 3, "--data_seed", 5, *TINY)
    assert untrained[0].train_dataset.seed == 5
    assert untrained[0].model.config.max_answer_length == len(long) + 1
    # What it takes for the answer of a title without a question may be longer.
    with open(tmp_path / "wiki.txt", "a") as corpus:
        corpus.write(f"Law 3. Prepared by {(longer := long.replace(',', ', Environment,'))} .\n")
    run(train_pretrain, "windows", *files, "--output_dir", tmp_path / "again", *TINY)
    assert untrained[-1].model.config.max_answer_length == len(longer) + 1


def test_dropout_of_a_pretrained_model_is_what_finetuning_is_told(run, world, tmp_path, untrained):
    tokenizer = build_tokenizer((world / "wiki.txt").read_text(), 128)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    for each in (PosGPTForCausalLM(PosGPTConfig(**sizes)), tokenizer):
        each.save_pretrained(tmp_path / "model")
    arguments = ["--model_name_or_path", tmp_path / "model", "--train_file", world / "birth_dev.tsv"]
    run(train_finetune, *arguments, *ON_CPU, "--output_dir", tmp_path / "out", "--dropout", 0.25)
    config = untrained[0].model.config
    assert {config.embd_pdrop, config.resid_pdrop, config.attention_dropout} == {0.25}


@pytest.mark.parametrize(
    "line",
    ["Where was Bo Ek born?\t北京", "When was Пушкин born?\t1799", "Où est né {} ?\tRome", "{}出生于哪里？\tRome"],
)
def test_what_is_lost_without_other_characters_than_ascii_is_refused(tmp_path, line):
    lines = [line.format("Ada"), line.format("Bo")] if "{}" in line else ["Where was Ada Ek born?\tRom", line]
    (tmp_path / "pairs.tsv").write_text("\n".join(lines), encoding="utf-8")
    questions = load_questions(tmp_path / "pairs.tsv", answers=True)
    with pytest.raises(BadInput, match=rf"pairs.tsv, line {1 if '{}' in line else 2}: ascii_only leaves too little"):
        drop_non_ascii(questions)


def test_learned_positions_can_begin_at_zero_or_anywhere():
    def measure(**settings) -> float:
        torch.manual_seed(0)
        model = PosGPTForCausalLM(PosGPTConfig(num_hidden_layers=1, **settings))
        return model.model.position_embedding.table.weight.std().item()

    assert measure(position_initializer_range=0.0) == 0
    assert measure() == pytest.approx(0.02, rel=0.05)
    wide = measure(position_embedding_type="concatenated", position_initializer_range=0.5)
    assert wide == pytest.approx(0.5, rel=0.05)


def test_a_trained_position_table_is_not_initialized_again(tmp_path):
    model = PosGPTForCausalLM(PosGPTConfig(num_hidden_layers=1, position_initializer_range=0.0))
    nn.init.ones_(model.model.position_embedding.table.weight)
    model.save_pretrained(tmp_path)
    loaded = PosGPTForCausalLM.from_pretrained(tmp_path)
    assert (loaded.model.position_embedding.table.weight == 1).all()


def test_sinusoidal_positions_are_added_to_scaled_or_unscaled_tokens():
    vectors = torch.ones(1, 3, 256)
    added = {}
    for scale in (True, False):
        config = PosGPTConfig(position_embedding_type="sinusoidal", num_hidden_layers=1, scale_embedding=scale)
        embedding = PosGPTForCausalLM(config).model.position_embedding
        added[scale] = embedding.embed(vectors, torch.arange(3)[None])
        assert torch.allclose(
            embedding.embed(0 * vectors, torch.arange(3)[None]), added[scale] - vectors * 16**scale, atol=1e-5
        )
    assert torch.allclose(added[True] - added[False], 15 * vectors)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_dropout_zeroes_its_share_and_keeps_the_expectation(dtype):
    torch.manual_seed(0)
    kept = dropout_mask(torch.Size([300, 1001]), 0.1, dtype)
    assert kept.dtype == dtype and kept.shape == (300, 1001)
    assert (kept == 0).float().mean().item() == pytest.approx(0.1, abs=0.003)
    assert kept[kept != 0].unique().tolist() == [torch.tensor(1 / 0.9, dtype=dtype).item()]
    # Neither neighbors in a row nor in a column are correlated.
    dropped = (kept == 0).float() - 0.1
    assert (dropped[1:] * dropped[:-1]).mean().abs() < 0.001 and (
        dropped[:, 1:] * dropped[:, :-1]
    ).mean().abs() < 0.001


def test_dropout_is_a_function_of_torchs_seed_and_its_gradient_has_the_same_zeros():
    x = torch.ones(50, 50, requires_grad=True)
    torch.manual_seed(3)
    first = drop(x, 0.5, training=True)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())
    assert not torch.equal(drop(x, 0.5, training=True), first)
    torch.manual_seed(3)
    assert torch.equal(drop(x, 0.5, training=True), first)
    assert drop(x, 0.5, training=False) is x
    # Without dropout, no random number is drawn.
    before = torch.get_rng_state()
    assert torch.equal(drop(x, 0.0, training=True), x) and torch.equal(torch.get_rng_state(), before)


def test_no_two_draws_of_dropout_are_alike():
    assert len({dropout_mask(torch.Size([64]), 0.5, torch.float32).numpy().tobytes() for _ in range(300)}) == 300


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_types_take_torchs_dropout(dtype):
    dropped = drop(torch.ones(100, 100, dtype=dtype), 0.1, training=True)
    assert dropped.dtype == dtype and (dropped == 0).double().mean().item() == pytest.approx(0.1, abs=0.02)


def test_a_recomputed_forward_pass_drops_the_same():
    gradients = []
    for recomputes in (False, True):
        torch.manual_seed(0)
        model = PosGPTForCausalLM(PosGPTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2)).train()
        if recomputes:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        torch.manual_seed(1)
        ids = torch.randint(2, 256, (4, 16))
        model(input_ids=ids, labels=ids).loss.backward()
        gradients.append(model.model.embed_tokens.weight.grad)
    torch.testing.assert_close(gradients[1], gradients[0])

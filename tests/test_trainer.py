"""What of transformers' Trainer the commands override: a library that changes it fails here, before a training does."""

import inspect
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from datasets import Dataset
from transformers import ProgressCallback, Trainer

from data_scripts.collators import RightPaddingCollator
from data_scripts.epochs import FixedDataset
from data_scripts.errors import BadInput
from model_helpers import tiny_model
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.trainer import PosGPTTrainer

# The private methods, with the parameters that Trainer calls them with.
PRIVATE = {
    "_get_train_sampler": ["self", "train_dataset"],
    "_track_num_input_tokens": ["self", "inputs"],
    "_get_grad_norm": ["self", "model", "grad_norm"],
    "_save_checkpoint": ["self", "model", "trial"],
}


def test_four_private_methods_are_overridden_as_the_library_calls_them():
    overridden = {name for name in vars(PosGPTTrainer) if name.startswith("_") and not name.endswith("__")}
    assert overridden == PRIVATE.keys()
    for name, parameters in PRIVATE.items():
        for owner in (Trainer, PosGPTTrainer):
            assert list(inspect.signature(getattr(owner, name)).parameters) == parameters, (owner, name)


def test_the_library_still_calls_them_between_gradient_and_weights():
    """Each in the order that the overrides count on, in the source of one epoch."""
    source = inspect.getsource(Trainer._run_epoch)
    order = ["get_batch_samples", "training_step", "_track_num_input_tokens", "_get_grad_norm", "optimizer.step()"]
    places = [source.index(f"self.{name}") for name in order]
    assert places == sorted(places)
    assert "_save_checkpoint" in inspect.getsource(Trainer._maybe_log_save_evaluate)


def test_flex_attention_is_refused_where_its_kernels_cannot_train(tmp_path):
    args = PosGPTTrainingArguments(str(tmp_path), use_cpu=True, report_to="none")
    for settings, reason in (
        ({}, "has no dropout; add"),
        ({"attention_dropout": 0.0}, "needs 16 dimensions per head"),
    ):
        model = tiny_model("learned", "flex_attention", **settings)
        with pytest.raises(BadInput, match=reason):
            PosGPTTrainer(model, args, train_dataset=FixedDataset([], 0))


@pytest.mark.parametrize("dropout, smoothing, has_read", [(0.0, 0.0, 1), (0.0, 0.1, 3), (0.1, 0.0, 3)])
def test_the_last_layer_computes_only_what_is_graded(tmp_path, dropout, smoothing, has_read):
    model, read = tiny_model("learned", resid_pdrop=dropout), []
    model.lm_head.register_forward_pre_hook(lambda _, inputs: read.append(inputs[0].flatten(0, -2).shape[0]))
    rows = Dataset.from_list([{"input_ids": [2, 3, 4], "labels": [-100, -100, 4]}])
    args = PosGPTTrainingArguments(str(tmp_path), use_cpu=True, report_to="none", label_smoothing_factor=smoothing)
    collator = RightPaddingCollator(SimpleNamespace(pad_token_id=0))
    trainer = PosGPTTrainer(model, args, train_dataset=FixedDataset(rows, 0), data_collator=collator)
    trainer.compute_loss(model.train(), collator(list(rows)))
    trainer.compute_loss(model.eval(), collator(list(rows)))
    # A loss of one's own is given all logits.
    trainer.compute_loss_func = lambda outputs, *_, **__: outputs.logits.sum()
    trainer.compute_loss(model.train(), collator(list(rows)))
    assert read == [has_read, 3, 3]


def test_a_step_that_grades_nothing_changes_nothing_and_does_not_end_training(tmp_path):
    model = tiny_model("learned")
    before = {name: each.clone() for name, each in model.named_parameters()}
    rows = Dataset.from_list([{"input_ids": [2, 3, 4], "labels": [-100] * 3}] * 4)
    args = PosGPTTrainingArguments(
        str(tmp_path), use_cpu=True, report_to="none", save_strategy="no", max_steps=1, weight_decay=0.0
    )
    collator = RightPaddingCollator(SimpleNamespace(pad_token_id=0))
    trainer = PosGPTTrainer(model, args, train_dataset=FixedDataset(rows, 0), data_collator=collator)
    assert trainer.train().training_loss == 0
    assert all(torch.equal(before[name], each) for name, each in model.named_parameters())


def test_the_progress_bar_shows_the_newest_figures(tmp_path):
    args = PosGPTTrainingArguments(str(tmp_path), use_cpu=True, report_to="none", disable_tqdm=False)
    trainer = PosGPTTrainer(tiny_model("learned"), args, train_dataset=FixedDataset([], 0))
    callbacks = trainer.callback_handler.callbacks
    (shown,) = (each for each in callbacks if isinstance(each, ProgressCallback))
    shown.training_bar = mock.Mock()
    shown.on_log(args, trainer.state, trainer.control, {"loss": 1.23456, "eval_accuracy": 0.9, "other": 2})
    shown.training_bar.set_postfix.assert_called_once_with({"loss": "1.235", "eval_accuracy": "0.9"})

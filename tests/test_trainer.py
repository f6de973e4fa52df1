"""What of transformers' Trainer the commands override: a library that changes it fails here, before a training does."""

import inspect

from transformers import Trainer

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

"""The Trainer of the training commands: what differs from transformers' own, in the order in which a run comes to it."""

import json
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import PartialState
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import DataLoader
from transformers import ProgressCallback, Trainer
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from data_scripts.errors import REFUSED_OPTIONS, BadInput, reraise_as_bad_input
from data_scripts.files import write_file
from data_scripts.questions import Questions
from modeling_posgpt.modeling_posgpt import shift_left
from posgpt.training import callbacks, checkpoints, hardware, metrics, run_record
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.batches import blank_repeated_rows
from posgpt.training.data import build_epoch_sampler, encode_pairs
from posgpt.training.estimate import plan_training
from posgpt.training.hub import open_repository, upload_model
from posgpt.training.model_card import describe_training, write_model_card
from posgpt.training.muon import build_muon, list_decayed_names
from posgpt.training.saved_models import save_pretrained
from posgpt.training.schedule import build_token_schedule


class PosGPTTrainer(Trainer):
    """Trainer with each epoch's own order, Muon, a schedule over tokens, and saves that are whole or not there.

    A run that is resumed ends as the uninterrupted one does, and one whose loss or gradient is not finite stops before a
    weight changes. Four private methods are overridden, which tests/test_trainer.py compares with the library's.

    Args:
        card_facts: Lines of the model card: a name and what to say of it.
        validation: The questions to evaluate on, of which some are logged with the model's answers.
        record: What the model was trained on and how, for `run.json` and the trackers (see `describe_run`).
    """

    model: Any
    args: Any
    hub_model_id: Any
    train_dataset: Any
    processing_class: Any
    samples: Questions | None = None
    limit: int | None = None

    def __init__(
        self,
        model: Any,
        args: PosGPTTrainingArguments,
        card_facts: dict[str, str] | None = None,
        validation: Questions | None = None,
        record: dict[str, Any] | None = None,
        **kwargs,
    ):
        args.record = record or {}
        # Trainer would drop what the collators read besides the model's own inputs as unused.
        args.remove_unused_columns = False
        # It would put earlier losses in place of NaN, and ask an accelerator for the loss twice in every forward pass.
        args.logging_nan_inf_filter = False
        # Counting waits for an accelerator at every step; on a CPU it is free. Padding does not count as read.
        if args.device.type == "cpu" or args.include_num_input_tokens_seen != "no":
            args.include_num_input_tokens_seen = "non_padding"
        uses_flex = hardware.check_flex_attention(cast(Any, model).config)
        if validation is not None:
            asked = [relation.name for relation in validation.relation_per_question]
            measured, best = ["loss", "accuracy", *metrics.name_accuracies(asked).values()], args.metric_for_best_model
            if best and best.removeprefix("eval_") not in measured:
                raise BadInput(f"metric_for_best_model is {best}; choose {' or '.join(measured)}.")
            kwargs |= {
                "eval_dataset": encode_pairs(validation, kwargs["processing_class"], args),
                "compute_metrics": partial(metrics.measure_answers, asked=asked, questions=validation.texts),
                "preprocess_logits_for_metrics": metrics.reduce_logits,
            }
            # Answers are written symbol by symbol; flex_attention would be compiled for their lengths.
            count = 0 if uses_flex else min(args.sample_answers, len(validation))
            # From the whole of the files, so that each relation has its share.
            self.samples = validation.take([i * len(validation) // count for i in range(count)])
        # A tracker that is not installed is a RuntimeError.
        with reraise_as_bad_input(*REFUSED_OPTIONS, RuntimeError):
            super().__init__(model, args, **kwargs)
        hardware.close_process_group_at_exit(PartialState())
        hardware.avoid_cudnn_attention()
        if args.device.type == "cpu":
            hardware.keep_freed_memory()
        if args.bf16 and self.is_fsdp_enabled:
            # Accelerate's own policy casts weights and each layer's inputs; here autocast does, as on one device.
            self.accelerator.state.fsdp_plugin.mixed_precision_policy = MixedPrecisionPolicy(cast_forward_inputs=False)
        self.card_facts = card_facts or {}
        self.resuming = callbacks.ResumeCallback()
        shown: list[Any] = [callbacks.FiguresProgressCallback] if self.pop_callback(ProgressCallback) else []
        shown += [callbacks.TimingCallback, callbacks.LossCallback, callbacks.MemoryCallback]
        for callback in (self.resuming, *shown):
            self.add_callback(callback)

    def train_or_resume(self, checkpoint: str | None) -> None:
        """Train from the beginning or from a checkpoint, then save model, metrics and state; what stops it is one line."""
        try:
            whole, plan = self.train_dataset, plan_training(self, checkpoint)
            if "max_spans" in self.args.record and self.train_dataset is not whole:
                # With `minutes`, it may be fewer than were given.
                self.args.record["max_spans"] = self.train_dataset.max_spans
            if self.args.should_log:
                print(plan.description)
            self.options = self.args.to_dict()
            self.prepare_folder(checkpoint)
            figures = self.train_from(checkpoint) | {"exposures": plan.exposures}
            # Before anything of an earlier model is overwritten.
            checkpoints.check_weights(self.model, self.state.global_step, self.args.output_dir)
            self.log_metrics("train", figures)
            self.save_metrics("train", figures)
            self.save_state()
            self.save_finished_model(Path(self.args.output_dir))
        except (KeyboardInterrupt, OSError, RuntimeError) as error:
            if (reason := checkpoints.explain_stop(error)) is None:
                raise
            where, last = f"{self.args.output_dir}: training stopped", checkpoints.describe_last(self.args.output_dir)
            raise BadInput(f"{where} at step {self.state.global_step}: {reason}; {last}.") from None
        if self.args.push_to_hub:
            self.push_to_hub()

    def prepare_folder(self, checkpoint: str | None) -> None:
        """Check that the checkpoint is of this training; later ones are removed when its optimizer has been loaded, too."""
        if checkpoint:
            with checkpoints.refuse_checkpoint(checkpoint):
                # The first process alone knows what the run reads.
                if own := self.args.record:
                    run_record.check_same_training(Path(checkpoint), self.options, self.model.config, own)
                if not any(Path(checkpoint).glob("optimizer*")):
                    raise ValueError("it has weights alone (save_only_model)")
        if self.args.should_save:
            self.resuming.later = checkpoints.list_later_checkpoints(self.args.output_dir, checkpoint)
        self.accelerator.wait_for_everyone()

    def train_from(self, checkpoint: str | None) -> dict[str, Any]:
        """Train; return the figures of it, peak memory among them."""
        if self.args.should_log:
            args = self.args
            parts = f"{args.world_size} × {args.gradient_accumulation_steps} × {args.per_device_train_batch_size}"
            print(
                f"Each training step reads {args.rows_per_step} rows (processes × batches × rows per batch: {parts})."
            )
        hardware.reset_peak_memory(self.args.device)
        try:
            figures = self.train(resume_from_checkpoint=checkpoint).metrics
        except (Exception, CheckpointException) as error:
            is_explained = isinstance(error, BadInput) or checkpoints.explain_stop(error) is not None
            if not checkpoint or self.resuming.has_begun or is_explained:
                raise
            # Before the first step, what nothing else explains is the checkpoint's fault.
            with checkpoints.refuse_checkpoint(checkpoint):
                raise
        figures["peak_memory_mib"] = hardware.measure_peak_memory()
        if self.args.device.type == "cuda":
            figures["peak_gpu_memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
        return figures

    def _get_train_sampler(self, train_dataset=None):
        # Private: what an epoch reads is a function of (seed, epoch, example), which no strategy of Trainer's is.
        return build_epoch_sampler(self.train_dataset, self.args)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return what `decayed_parameters` says: linear layers' weights, or all but biases."""
        return list_decayed_names(model, self.args.decayed_parameters)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Return Trainer's, or with `use_muon` Muon for the layers' matrices and AdamW for the rest."""
        with reraise_as_bad_input(*REFUSED_OPTIONS):
            if self.args.use_muon and self.optimizer is None:
                self.optimizer = build_muon(self.model, self.args)
            return super().create_optimizer(model)

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> Any:
        """Return transformers' schedule, or with `lr_schedule` tokens minGPT's (see `compute_rate_factor`)."""
        optimizer = optimizer or cast(Any, self.optimizer)
        with reraise_as_bad_input(*REFUSED_OPTIONS):
            if self.args.lr_schedule == "tokens" and self.lr_scheduler is None:
                shape = len(self.train_dataset), self.model.config.max_position_embeddings
                self.lr_scheduler = build_token_schedule(optimizer, self.args, num_training_steps, *shape)
            scheduler = super().create_scheduler(num_training_steps, optimizer)
        # A checkpoint's are loaded next, over these.
        self.resuming.own = [dict(group) for group in optimizer.param_groups]
        return scheduler

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device) -> tuple[list, Any]:
        """Read the batches of a training step and count what is graded in them."""
        if self.state.global_step >= self.state.max_steps:
            # Trainer would take one step more when it is resumed from the last.
            return [], None
        blank = partial(blank_repeated_rows, state=self.accelerator.gradient_state, args=self.args)
        batches, graded = super().get_batch_samples(map(blank, epoch_iterator), num_batches, device)
        # Of a step that grades nothing, the loss is 0, not 0 / 0.
        return batches, graded.clamp(min=1) if isinstance(graded, torch.Tensor) else graded

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Compute the loss. On a CPU, the last layer computes only graded tokens; an accelerator would wait for their number."""
        is_cheaper = model.training and self.args.device.type == "cpu" and not self.args.torch_compile
        is_own_loss = self.label_smoother is None and self.compute_loss_func is None
        # With dropout, a run that is resumed from an earlier version would draw what is dropped differently.
        if is_cheaper and is_own_loss and not self.model.config.resid_pdrop:
            inputs = {**inputs, "logits_to_keep": shift_left(inputs["labels"]) != -100}
        return super().compute_loss(model, inputs, *args, **kwargs)

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager:
        """Multiply in bfloat16 where weights are sharded (FSDP2), too: accelerate wraps all other models itself."""
        return self.accelerator.autocast() if self.is_fsdp_enabled else super().autocast_smart_context_manager()

    def _track_num_input_tokens(self, inputs: dict) -> None:
        # Private: Trainer would count the entries of a mask of any shape instead of the characters.
        super()._track_num_input_tokens({"input_ids": inputs["input_ids"]})

    def _get_grad_norm(self, model: nn.Module, grad_norm: torch.Tensor | None = None) -> torch.Tensor:
        # Private: nowhere else is the norm known before a weight changes.
        norm = super()._get_grad_norm(model, grad_norm)
        # One sum, so that an accelerator is waited for once. Gradients in fp16 may overflow: their scaler skips such a step.
        checked = self._tr_loss if self.accelerator.scaler else self._tr_loss + norm
        if not torch.isfinite(checked):
            what, step = "gradient" if torch.isfinite(self._tr_loss) else "loss", self.state.global_step
            raise BadInput(
                f"step {step + 1}: the {what} is {checked.item()}, at a learning rate of {self._get_learning_rate():.4g};"
                f" {checkpoints.describe_last(self.args.output_dir)}. Most often a lower --learning_rate helps."
            )
        return norm

    def get_eval_dataloader(self, eval_dataset=None) -> DataLoader:
        """Read the questions in their own order, by which `measure_answers` knows them; Trainer might sort by length."""
        dataset, size = cast(Any, self.eval_dataset), self.args.eval_batch_size
        return self.accelerator.prepare(DataLoader(dataset, size, collate_fn=self.data_collator))

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Evaluate, and log some of the validation questions with the model's answers: trackers show texts, too."""
        # A data loader draws a random number as it starts, and a run that is resumed at an epoch's end may not evaluate that.
        with torch.random.fork_rng(devices=[]):
            measured = super().evaluate(*args, **kwargs)
        if self.samples:
            self.log({"eval_answers": metrics.show_answers(self.model, self.processing_class, self.samples)})
        return measured

    def log(self, logs: dict[str, Any], start_time: float | None = None) -> None:
        """Log, with the mean of all processes' loss at the end."""
        if "train_loss" in logs and self.args.world_size > 1:
            # Trainer has added what this process alone has lost since the last log.
            loss = torch.tensor(logs["train_loss"], device=self.args.device)
            logs["train_loss"] = self.accelerator.reduce(loss, "mean").item()
        super().log(logs, start_time)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save weights, configuration, code, tokenizer, model card and `run.json`; in a checkpoint, shards are Trainer's."""
        weights = None if self.is_fsdp_enabled else self.model.state_dict()
        if self.is_fsdp_enabled and "FULL" in str(self.accelerator.state.fsdp_plugin.state_dict_type):
            weights = self.accelerator.get_state_dict(self.model)
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            model = save_pretrained(self.model, weights, self.processing_class, folder)
            facts = self.card_facts | describe_training(self.state, self.args, self.find_best_step())
            write_model_card(folder, model, facts, self.args.hub_license)
            written = run_record.build_record(self.options, model.config)
            write_file(folder / run_record.RUN_FILE, json.dumps(written, indent=2, ensure_ascii=False))

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        # Private: Trainer's has no end after which a checkpoint is known to be whole.
        folder = Path(self.args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}")
        if checkpoints.find_damage(folder) is None:
            return  # This run was resumed from it.
        checkpoints.check_weights(self.model, self.state.global_step, self.args.output_dir)
        with checkpoints.save_or_remove(folder):
            if self.args.should_save:
                checkpoints.open_checkpoint(folder)
            # Trainer would delete older checkpoints before this one is whole, and somebody's copies, too.
            self.limit, self.args.save_total_limit = self.args.save_total_limit or self.limit, None
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                checkpoints.seal_checkpoint(folder)
        if self.args.should_save:
            checkpoints.delete_old_checkpoints(folder.parent, self.limit, self.state.best_model_checkpoint)

    def save_finished_model(self, output_dir: Path) -> None:
        """Save the model beside `output_dir`'s files, then move it there, so that a folder with weights is finished."""
        if self.is_fsdp_enabled:
            # Checkpoints may be in shards; the finished model is whole.
            self.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
        staging = output_dir / checkpoints.STAGING
        with checkpoints.save_or_remove(staging):
            self.save_model(str(staging))
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            checkpoints.move_finished_model(staging, output_dir)
        self.accelerator.wait_for_everyone()
        if self.args.should_log:
            accuracy = run_record.find_last_figure(self.state.log_history, "eval_accuracy", self.find_best_step())
            print(f"Written: {output_dir}" if accuracy is None else f"Written: {output_dir} (accuracy {accuracy:.1%})")

    def find_best_step(self) -> int | None:
        """Return the step whose weights the model has; None: the last one's."""
        # A checkpoint's own weights are those of its step; after training, the best ones are in their place.
        return run_record.find_best_step(vars(self.state), self.args.load_best_model_at_end and not self.is_in_train)

    def init_hf_repo(self, *args: Any, **kwargs: Any) -> None:
        """Called before training where the model is pushed after it; see `open_repository`."""
        if self.is_world_process_zero():
            self.hub_model_id = open_repository(self.args)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Upload the finished model; Trainer's own would first save it again, over the finished files."""
        if self.is_world_process_zero():
            upload_model(self.args, self.hub_model_id)

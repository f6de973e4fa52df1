"""The Trainer of the training commands: each epoch's order, Muon, the model card, an atomic last save and the hub."""

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.utils.data import SequentialSampler
from transformers import EvalPrediction, ProgressCallback
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.trainer_pt_utils import get_parameter_names, nested_gather

from data_scripts.epochs import EpochDataset
from data_scripts.errors import BadInput
from data_scripts.files import make_file_name, sync_file
from data_scripts.options import shorten_error
from data_scripts.questions import Questions
from modeling_posgpt import PosGPTConfig, PosGPTForCausalLM
from posgpt.tables import format_table
from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.checkpoints import WEIGHTS_FILE, find_last_checkpoint, list_later_checkpoints
from posgpt.training.data import build_epoch_sampler, encode_pairs
from posgpt.training.hardware import (
    avoid_cudnn_attention,
    bf16_is_fast,
    close_process_group_at_exit,
    keep_freed_memory,
    measure_peak_memory,
    reset_peak_memory,
)
from posgpt.training.hub import open_repository, upload_model
from posgpt.training.model_card import write_model_card
from posgpt.training.muon import MuonWithAdamW
from posgpt.training.reliable_trainer import LAUNCHER_REPORT, ReliableTrainer, name_checkpoint, remove_if_unsaved
from posgpt.training.run_record import (
    check_same_training,
    find_best_step,
    find_last_figure,
    format_files,
    write_record,
)
from posgpt.training.schedule import compute_rate_factor, count_examples


def reduce_logits(logits: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Reduce logits (batch, length, symbols), to save memory in evaluation.

    Returns:
        The likeliest symbol's id (batch, length), and the sum of a row's losses in nats (batch,).
    """
    losses = nn.functional.cross_entropy(logits[:, :-1].float().mT, labels[:, 1:], reduction="none")
    return logits.argmax(dim=-1), losses.sum(dim=-1)


def measure_answers(prediction: EvalPrediction, asked: Sequence[str] = ()) -> dict[str, float]:
    """Measure the accuracy and the loss of all rows together, whatever batches they were read in.

    Args:
        asked: The name of the relation that each row asks for.

    Returns:
        `accuracy`, the share of rows in which every answer symbol is the likeliest given the ones before, as in greedy
        decoding, and with several relations `accuracy_RELATION` of each; `loss`, in nats per graded symbol.
    """
    likeliest, losses = cast(Any, prediction.predictions)
    predicted, labels = likeliest[:, :-1], np.asarray(prediction.label_ids)[:, 1:]
    is_graded = labels != -100
    is_right = np.all((predicted == labels) | ~is_graded, axis=1)
    metrics = {"accuracy": float(is_right.mean()), "loss": float(losses.sum() / is_graded.sum())}
    for name, metric in name_accuracies(asked).items():
        metrics[metric] = float(is_right[np.array(asked) == name].mean())
    return metrics


def name_accuracies(asked: Iterable[str]) -> dict[str, str]:
    """Return what the accuracy of each of several relations is logged as; of one alone, it is `accuracy`."""
    names = dict.fromkeys(asked)
    return {name: f"accuracy_{make_file_name(name)}" for name in names} if len(names) > 1 else {}


def check_metrics(metric_for_best_model: str | None, accuracies: dict[str, str]) -> None:
    """Check that relations have accuracies of different names, and that what the best model is chosen by is measured.

    Args:
        accuracies: From `name_accuracies`.

    Raises:
        BadInput: it is not so.
    """
    if len(set(accuracies.values())) < len(accuracies):
        names = ", ".join(map(repr, accuracies))
        raise BadInput(
            f"{names}: the accuracies of two of these relations would have one name, since theirs differ in punctuation only;"
            " give one of them another name, with --relations."
        )
    measured = ["loss", "accuracy", *accuracies.values()]
    if metric_for_best_model and metric_for_best_model.removeprefix("eval_") not in measured:
        raise BadInput(f"metric_for_best_model is {metric_for_best_model}; choose {' or '.join(measured)}.")


def check_flex_attention(config: PosGPTConfig) -> None:
    """Check that flex_attention can train a model.

    Raises:
        BadInput: the model has dropout, which flex_attention has not, or heads that are smaller than its kernels allow.
    """
    if config.attention_dropout:
        raise BadInput("flex_attention has no dropout; add --dropout 0, or choose another --attn_implementation.")
    if config.head_dim < 16:
        raise BadInput(
            f"flex_attention needs at least 16 dimensions per attention head, and these have {config.head_dim}; choose fewer"
            " num_attention_heads, or another --attn_implementation."
        )


@contextmanager
def name_arguments() -> Iterator[None]:
    """Say that it is the arguments that transformers or torch refuse.

    Raises:
        BadInput: they were.
    """
    try:
        yield
    except BadInput:
        raise
    except (ValueError, TypeError, ImportError) as error:
        raise BadInput(
            f"these arguments are not compatible: {shorten_error(error)}; change or remove one of them."
        ) from None


class FiguresProgressCallback(ProgressCallback):
    """Transformers' progress bar with the newest figures on it instead of a new line of figures at every log."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is not None and logs:
            shown = ("epoch", "loss", "loss_spike", "learning_rate", "eval_loss", "eval_accuracy")
            self.training_bar.set_postfix({name: f"{float(logs[name]):.4g}" for name in shown if name in logs})


class PosGPTTrainer(ReliableTrainer):
    """Trainer with each epoch's own order, Muon, a schedule over tokens, PosGPT's model card and an atomic last save.

    Args:
        card_facts: Lines of the model card: a name and what to say of it.
        validation: The questions to evaluate on, of which some are logged with the model's answers.
        record: What the model was trained on and how, for `run.json` and the trackers (see `describe_run`).

    Raises:
        BadInput: the arguments are not compatible.
    """

    model: Any
    args: Any
    hub_model_id: Any

    def __init__(
        self,
        model: nn.Module,
        args: PosGPTTrainingArguments,
        card_facts: dict[str, str] | None = None,
        validation: Questions | None = None,
        record: dict[str, Any] | None = None,
        **kwargs,
    ):
        args.record = record or {}
        # Trainer would drop what the collators read besides the model's own inputs as unused.
        args.remove_unused_columns = False
        # Counting waits for an accelerator at every step; on a CPU it is free. Padding does not count as read.
        if args.device.type == "cpu" or args.include_num_input_tokens_seen != "no":
            args.include_num_input_tokens_seen = "non_padding"
        if validation is not None:
            asked = [relation.name for relation in validation.asked]
            check_metrics(args.metric_for_best_model, name_accuracies(asked))
            kwargs |= {
                "eval_dataset": encode_pairs(validation, kwargs["processing_class"], args),
                "compute_metrics": partial(measure_answers, asked=asked),
                "preprocess_logits_for_metrics": reduce_logits,
            }
        config = cast(Any, model).config
        if config._attn_implementation == "flex_attention":
            check_flex_attention(config)
        with name_arguments():
            super().__init__(model, args, **kwargs)
        close_process_group_at_exit(PartialState())
        avoid_cudnn_attention()
        plugin = getattr(self.accelerator.state, "fsdp_plugin", None)
        if args.bf16 and plugin is not None:
            # Accelerate's own policy casts weights and each layer's inputs; here autocast does, as on one device.
            plugin.mixed_precision_policy = MixedPrecisionPolicy(cast_forward_inputs=False)
        # As they are given: Trainer changes some for a while.
        self.options = args.to_dict()
        self.card_facts = card_facts or {}
        self.samples: dict[str, list[str]] = {}
        if validation is not None and args.sample_answers:
            count = min(args.sample_answers, len(validation))
            # From the whole of the files, so that each relation has its share.
            self.samples = validation.rows[[number * len(validation) // count for number in range(count)]]
        self.remove_callback(ProgressCallback)
        if not self.args.disable_tqdm:
            self.add_callback(FiguresProgressCallback)

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager:
        """Multiply in bfloat16 where weights are sharded (FSDP2), too: accelerate wraps all other models itself."""
        return self.accelerator.autocast() if self.is_fsdp_enabled else super().autocast_smart_context_manager()

    def _get_train_sampler(self, train_dataset=None):
        return build_epoch_sampler(cast(EpochDataset, self.train_dataset), self.args)

    def _get_eval_sampler(self, eval_dataset: Any) -> SequentialSampler:
        # Trainer would sort by length where training does; `measure_answers` knows the rows by their order.
        return SequentialSampler(eval_dataset)

    def _get_num_items_in_batch(self, batch_samples: list, device: torch.device) -> torch.Tensor | int | None:
        """Count what is graded, after turning into padding the rows that only fill up a dataset's last batches.

        Accelerate repeats rows until all processes have as many; they would count twice. A row is one text, unless the collator
        says in `texts_of_rows` (rows,) how many texts each is.
        """
        state, count = self.accelerator.gradient_state, self.args.world_size
        texts_of_rows = [batch.pop("texts_of_rows", None) for batch in batch_samples]
        if count > 1 and batch_samples and state.end_of_dataloader and not self.args.dataloader_drop_last:
            last, texts = batch_samples[-1], texts_of_rows[-1]
            if texts is None:
                texts = torch.ones(len(last["labels"]), dtype=torch.int64)
            size = len(texts)
            # Accelerate does not know its own remainder in an epoch that is resumed.
            rows = len(cast(Any, state.active_dataloader).dataset) % (size * count) or size * count
            filled = slice(int(texts[: min(max(rows - self.args.process_index * size, 0), size)].sum()), None)
            last["input_ids"][filled] = self.model.config.pad_token_id
            last["labels"][filled] = -100
        return super()._get_num_items_in_batch(batch_samples, device)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        # Trainer would add what one process alone has lost since the last log.
        self._tr_loss = nested_gather(self._tr_loss, self.args.parallel_mode).mean()
        return super()._finalize_training(*args, **kwargs)

    def _track_num_input_tokens(self, inputs: dict) -> None:
        """Count tokens that are not padding; Trainer would count the entries of a mask of any shape."""
        super()._track_num_input_tokens({"input_ids": inputs["input_ids"]})

    @staticmethod
    def list_matrix_names(model: nn.Module) -> list[str]:
        """Return the names of linear layers' weights (minGPT's grouping)."""
        return [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)]

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return what `decayed_parameters` says: linear layers' weights, or all but biases."""
        if self.args.decayed_parameters == "all_but_biases":
            return get_parameter_names(model, [], [r"bias$"])
        return self.list_matrix_names(model)

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        """Return transformers' schedule, or with `lr_schedule` tokens minGPT's (see `compute_rate_factor`)."""
        if self.args.lr_schedule == "steps" or self.lr_scheduler is not None:
            with name_arguments():
                return super().create_scheduler(num_training_steps, optimizer)
        batch_size = self.args.rows_per_step
        epoch_size = len(cast(Sized, self.train_dataset))
        length = self.model.config.max_position_embeddings
        final_tokens = self.args.final_tokens
        if final_tokens is None:
            final_tokens = count_examples(num_training_steps, batch_size, epoch_size) * length

        def compute_factor(step: int) -> float:
            # As the starter code counts: a row padded to `length` symbols has one target less, and targets are what has been
            # read, but the end is given in symbols.
            tokens = count_examples(step, batch_size, epoch_size) * (length - 1)
            return compute_rate_factor(tokens, self.args.warmup_tokens, final_tokens)

        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer or cast(Any, self.optimizer), compute_factor)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Return Trainer's, or with `use_muon` Muon for the layers' matrices and AdamW for the rest."""
        with name_arguments():
            if self.args.use_muon and self.optimizer is None:
                self.optimizer = self._build_muon()
            return super().create_optimizer(model)

    def _build_muon(self) -> MuonWithAdamW:
        # The output layer is a table of symbols, as the embeddings are; Muon's author advises against Muon for both.
        head = self.model.get_output_embeddings().weight
        matrix_names = set(self.list_matrix_names(self.model))
        # Processes that chose each for itself would train different models.
        (dtype,) = broadcast_object_list([torch.bfloat16 if bf16_is_fast(self.args.device) else torch.float32])
        # Of the rest, AdamW decays nothing, or all but biases.
        decays_more = self.args.decayed_parameters == "all_but_biases"
        decayed_names = set(self.get_decay_parameter_names(self.model)) if decays_more else set()
        matrices: list[nn.Parameter] = []
        stacked: list[int] = []
        others: list[nn.Parameter] = []
        decayed_others: list[nn.Parameter] = []
        for name, parameter in self.model.named_parameters():
            if name in matrix_names and parameter is not head:
                matrices.append(parameter)
                # Queries', keys' and values' in one.
                stacked.append(3 if name.endswith("qkv_proj.weight") else 1)
            else:
                (decayed_others if name in decayed_names else others).append(parameter)
        groups = [{"params": others}, {"params": decayed_others, "weight_decay": self.args.weight_decay}]
        return MuonWithAdamW(
            matrices,
            # One group where AdamW decays nothing: optimizer states saved by earlier versions have no second one.
            groups if decayed_others else others,
            lr=self.args.learning_rate,
            weight_decay=self.args.weight_decay,
            betas=(self.args.adam_beta1, self.args.adam_beta2),
            eps=self.args.adam_epsilon,
            newton_schulz_dtype=dtype,
            stacked=stacked,
        )

    def evaluate(self, *args, **kwargs) -> dict[str, float]:
        """Evaluate, and log some of the validation questions with the model's answers: trackers show texts, too."""
        metrics = super().evaluate(*args, **kwargs)
        if self.samples:
            questions, right = self.samples["question"], self.samples["answer"]
            attention = self.model.config._attn_implementation
            # Answers are written symbol by symbol; flex_attention would be compiled for their lengths.
            self.model.set_attn_implementation("sdpa")
            answers = [answer.text for answer in self.model.answer(questions, self.processing_class)]
            self.model.set_attn_implementation(attention)
            rows = zip(questions, answers, right, strict=True)
            logs: Any = {"eval_answers": format_table(("question", "the model's answer", "right answer"), rows)}
            self.log(logs)
        return metrics

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save weights, configuration, code, tokenizer, model card and `run.json`."""
        # Trainer turned the cache off for training; a loaded model should use it.
        self.model.config.use_cache = True
        # Trainer would push from here what is not in its place yet.
        super().save_model(output_dir, _internal_call=True)
        if self.args.should_save:
            folder = Path(output_dir or self.args.output_dir)
            self._write_model_card(folder)
            write_record(folder, self.options, self.model.config)
        self.model.config.use_cache = self.args.use_cache

    def init_hf_repo(self, *args: Any, **kwargs: Any) -> None:
        """Called before training where the model is pushed after it; see `open_repository`."""
        if self.is_world_process_zero():
            self.hub_model_id = open_repository(self.args)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """Upload the finished model (see `upload_model`); Trainer's own would first save it again, over the finished files."""
        if self.is_world_process_zero():
            upload_model(self.args, self.hub_model_id)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        sharded = self.model
        if self.is_fsdp_enabled:
            # FSDP2 turns a model into one of a class of its own, whose code would be saved instead of the model's.
            with torch.device("meta"):
                self.model = PosGPTForCausalLM(sharded.config)
        super()._save(output_dir, state_dict)
        self.model = sharded

    def _write_model_card(self, folder: Path) -> None:
        state, args = self.state, self.args
        read = f", {state.num_input_tokens_seen:,} characters" if state.num_input_tokens_seen else ""
        facts = self.card_facts | {
            "Training": f"{state.global_step} steps ({state.epoch or 0:.4g} epochs{read}), peak learning rate"
            f" {args.learning_rate:g}, seed {args.seed}"
        }
        if best := self._find_best_step():
            facts["Weights"] = f"those of step {best}, the best by {args.metric_for_best_model}"
        if (loss := find_last_figure(state.log_history, "loss", best)) is not None:
            facts["Training loss"] = f"{loss:.4f} nats per character, the last one logged"
        if (accuracy := find_last_figure(state.log_history, "eval_accuracy", best)) is not None:
            facts["Validation accuracy"] = f"{accuracy:.1%} (exact match)"
        if args.record:
            files = [format_files(files) for files in args.record["data"].values()]
            facts["Data"] = ", ".join(dict.fromkeys(files))
            facts["Software"] = ", ".join(" ".join(each) for each in args.record["versions"].items())
        write_model_card(folder, self.model, facts, args.hub_license)

    def train_or_resume(self, checkpoint: str | None) -> None:
        """Train from the beginning or from a checkpoint, then save model, metrics and state into the output folder.

        Raises:
            BadInput: it was interrupted (Ctrl-C), the loss or a weight is not finite, the checkpoint does not fit, a file could
                not be written, another process has ended, or the hub refuses.
        """
        try:
            self._train_and_save(checkpoint)
        except KeyboardInterrupt:
            found = find_last_checkpoint(Path(self.args.output_dir))
            raise BadInput(
                f"{self.args.output_dir}: interrupted at step {self.state.global_step}; {self._describe_last_checkpoint()}."
                + (" --resume_from_checkpoint last goes on from there." if found else "")
            ) from None
        except torch.OutOfMemoryError:
            smaller = "double --gradient_accumulation_steps"
            if self.args.total_train_batch_size is None:
                smaller += " and halve --per_device_train_batch_size"
            raise BadInput(
                f"{self.args.output_dir}: the accelerator is out of memory at step {self.state.global_step + 1}; {smaller},"
                " which trains the same, or halve --per_device_eval_batch_size if this was an evaluation;"
                f" {self._describe_last_checkpoint()}."
            ) from None
        except (OSError, RuntimeError) as error:
            # gloo has no exception class of its own for a process that has ended.
            is_distributed = isinstance(error, torch.distributed.DistError) or (
                isinstance(error, RuntimeError) and "gloo" in str(error)
            )
            if isinstance(error, RuntimeError) and not is_distributed:
                raise
            reason = "another process cannot be reached: " if is_distributed else ""
            raise BadInput(
                f"{self.args.output_dir}: training stopped at step {self.state.global_step}: {reason}"
                f"{shorten_error(error)}; {self._describe_last_checkpoint()}."
            ) from None
        finally:
            # This process's own message says more than the launcher's report.
            if LAUNCHER_REPORT in os.environ:
                Path(os.environ[LAUNCHER_REPORT]).unlink(missing_ok=True)
        if self.args.push_to_hub:
            self.push_to_hub()

    def _train_and_save(self, checkpoint: str | None) -> None:
        self._check_rows(checkpoint)
        if self.args.should_save:
            # Later ones would be kept as the newest when older ones are deleted.
            for folder in list_later_checkpoints(Path(self.args.output_dir), Path(checkpoint) if checkpoint else None):
                shutil.rmtree(folder)
        self.accelerator.wait_for_everyone()
        self._tell_launcher(self._describe_last_checkpoint())
        args = self.args
        if args.should_log:
            print(
                f"Each training step reads {args.rows_per_step} rows (processes × batches × rows per batch: {args.world_size} ×"
                f" {args.gradient_accumulation_steps} × {self._train_batch_size})."
            )
        if args.device.type == "cpu":
            keep_freed_memory()
        reset_peak_memory(args.device)
        result = self.train(resume_from_checkpoint=checkpoint)
        metrics: dict[str, Any] = result.metrics | {"peak_memory_mib": measure_peak_memory()}
        if self.args.device.type == "cuda":
            metrics["peak_gpu_memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
        self.log_metrics("train", metrics)
        self.save_metrics("train", metrics)
        self.save_state()
        self._check_weights()
        if self.is_fsdp_enabled:
            # Checkpoints may be in shards; the finished model is whole.
            self.accelerator.state.fsdp_plugin.set_state_dict_type("FULL_STATE_DICT")
        self._save_atomically(Path(self.args.output_dir))
        if args.should_log:
            accuracy = find_last_figure(self.state.log_history, "eval_accuracy", self._find_best_step())
            print(
                f"Written: {args.output_dir}"
                + (f" (validation accuracy {accuracy:.1%})" if accuracy is not None else "")
            )

    def _find_best_step(self) -> int | None:
        # A checkpoint's own weights are those of its step; after training, the best ones are in their place.
        return find_best_step(vars(self.state), self.args.load_best_model_at_end and not self.is_in_train)

    def _check_rows(self, checkpoint: str | None) -> None:
        """Check that there are rows to train on, and that they are those of the checkpoint, before others are deleted."""
        rows, batch = len(cast(Sized, self.train_dataset)), self._train_batch_size * self.args.world_size
        if self.args.dataloader_drop_last and rows < batch:
            raise BadInput(
                f"dataloader_drop_last leaves out all {rows} rows, since a batch on all processes has {batch}; leave it out,"
                " or choose smaller batches."
            )
        # The first process alone knows what the run reads.
        if checkpoint and self.args.record:
            with name_checkpoint(checkpoint):
                check_same_training(Path(checkpoint), self.args.record, self.options, self.model.config)

    def _save_atomically(self, output_dir: Path) -> None:
        """Save the model beside `output_dir`'s files, then move it there, so that a folder with weights is finished."""
        staging = output_dir / ".unfinished"
        with remove_if_unsaved(staging):
            self.save_model(str(staging))
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            # Pickled options, which nothing reads: loading a pickle may run code, and they name this machine's folders.
            (staging / TRAINING_ARGS_NAME).unlink(missing_ok=True)
            for file in staging.iterdir():
                sync_file(file)
            # What is replaced would be weights beside another model's configuration. The new weights are moved last.
            (output_dir / WEIGHTS_FILE).unlink(missing_ok=True)
            for file in sorted(staging.iterdir(), key=lambda file: file.name == WEIGHTS_FILE):
                os.replace(file, output_dir / file.name)
            staging.rmdir()

"""The options of every training, beside transformers' own, and what is refused before anything is read."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Literal

import torch
from transformers import TrainingArguments
from transformers.integrations.integration_utils import get_reporting_integration_callbacks
from transformers.utils import logging

from data_scripts.epochs import EpochSampler
from data_scripts.errors import BadInput
from data_scripts.files import check_is_file
from data_scripts.options import Range, check_options, option, shorten_error
from posgpt.training.hardware import bf16_is_fast

# What each `lr_schedule` alone reads.
SCHEDULE_OPTIONS = {
    "steps": ("lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps"),
    "tokens": ("warmup_tokens", "final_tokens"),
}
# The least and the most that numbers of transformers' may be, where that is not 0 and any number.
_LEAST = {
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "eval_accumulation_steps": 1,
    "dataloader_prefetch_factor": 1,
    "ddp_timeout": 1,
    # As 0, without a limit.
    "save_total_limit": -math.inf,
}
_MOST = {"seed": 2**32 - 1, "data_seed": 2**32 - 1, "label_smoothing_factor": 1}
# What has to stay as it is, and why.
_FIXED = {
    "use_liger_kernel": "Liger has no kernels for PosGPT",
    "auto_find_batch_size": "it would change how many rows a training step reads (--gradient_accumulation_steps does not)",
    "enable_jit_checkpoint": "it would end an interrupted training as if it were finished",
    "eval_do_concat_batches": "answers are measured over all batches",
    "batch_eval_metrics": "answers are measured over all batches",
    "label_names": "the labels are called `labels`",
    "hub_token": "a command line stays in the shell's history (log in with `hf auth login`, or set HF_TOKEN)",
}

logger = logging.get_logger(__name__)


@dataclass
class PosGPTTrainingArguments(TrainingArguments):
    """transformers' TrainingArguments with defaults for this machine, and PosGPT's own options."""

    _argument_group_name = "training"

    # Empty: transformers would write into a folder `trainer_output` that nobody asked for.
    output_dir: str = option("The folder for the model and its checkpoints.", default="")
    # None until this machine is asked, in `__post_init__`; transformers' fields have no None.
    use_cpu: bool | None = option(  # type: ignore[assignment]
        "Whether to train on the CPU (default: if there is no accelerator).", default=None
    )
    bf16: bool | None = option(  # type: ignore[assignment]
        "Whether to multiply matrices in bfloat16 (default: where the hardware has instructions for it, without fp16).",
        default=None,
    )
    dataloader_num_workers: int | None = option(  # type: ignore[assignment]
        "How many processes read the data, besides the training's own (default: 0; with GPUs at most 4 for each).",
        default=None,
    )
    dataloader_persistent_workers: bool | None = option(  # type: ignore[assignment]
        "Whether these processes stay from one epoch to the next (default: except on a CPU).", default=None
    )
    # Every parameter has a gradient; Trainer would have each step look for those that have none.
    ddp_find_unused_parameters: bool | None = option(
        "Whether distributed training looks for parameters without a gradient; PosGPT has none.", default=False
    )
    ddp_broadcast_buffers: bool | None = option(
        "Whether distributed training sends buffers to all processes in each step; PosGPT's are constants.",
        default=False,
    )
    attn_implementation: str | None = option(
        "eager, sdpa or, on CUDA, flex_attention (default: sdpa; on a CPU eager, faster for short sequences).",
        default=None,
    )
    resume_from_checkpoint: str | None = option(
        "Where to resume: `last`, the newest checkpoint that is intact; `auto`, the same, but training"
        " starts from scratch if there is none, and nothing is done if the model is finished; or a checkpoint's folder.",
        default=None,
    )
    total_train_batch_size: Annotated[int | None, Range(1)] = option(
        "Rows per training step, of all processes and accumulated batches together; per_device_train_batch_size follows from"
        " it.",
        default=None,
    )
    sample_answers: Annotated[int, Range(0)] = option(
        "How many validation questions are logged at each evaluation, as text, with the model's answers and the right ones.",
        default=5,
    )
    first_shares: Annotated[list[float], Range(0, 1)] = option(
        "Training begins with a pass over each of these shares of the documents, smaller ones within larger ones. The passes"
        " replace the same number of examples of the first epochs: the facts of a few documents are learned sooner, and those"
        " of the rest then follow.",
        default_factory=list,
    )
    use_muon: bool = option(
        "Whether to train the layers' matrices with Muon and only the rest with AdamW.", default=False
    )
    decayed_parameters: Literal["matrices", "all_but_biases"] = option(
        "What weight_decay decays: linear layers' weights, or also embeddings and LayerNorms' weights.",
        default="matrices",
    )
    lr_schedule: Literal["steps", "tokens"] = option(
        "What the learning rate follows: training steps, as lr_scheduler_type says, or the tokens read, padding"
        " included, by minGPT's cosine with a floor of a tenth.",
        default="steps",
    )
    warmup_tokens: Annotated[int, Range(0)] = option(
        "lr_schedule tokens: for how many tokens the learning rate grows.", default=0
    )
    final_tokens: Annotated[int | None, Range(1)] = option(
        "lr_schedule tokens: how many tokens the cosine takes (default: the maximum sequence length times the examples that"
        " training reads).",
        default=None,
    )
    # Pushing at every save would put unfinished weights where the finished ones belong.
    hub_strategy: str = option("When to push: the finished model alone is pushed.", default="end", choices=["end"])
    hub_private_repo: bool = option("Whether a repository that push_to_hub creates is private.", default=True)
    hub_license: str | None = option(
        "The model's license for its card, as the hub calls it: apache-2.0, cc-by-sa-4.0, …", default=None
    )

    # What the trackers and `run.json` are told besides: see `describe_run`.
    record: dict[str, Any] = field(init=False, default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments and `record`, for `run.json` and, by transformers' callbacks, for the trackers."""
        return self.record | super().to_dict() | {"total_train_batch_size": self.rows_per_step}

    @property
    def rows_per_step(self) -> int:
        """Rows per training step, of all processes and accumulated batches together."""
        return self.per_device_train_batch_size * self._count_batches_per_step()

    def _count_batches_per_step(self) -> int:
        return self.world_size * max(1, self.gradient_accumulation_steps)

    def __post_init__(self):
        """Decide what follows from this machine, and refuse what transformers lets pass.

        Raises:
            BadInput: a number is not finite, too small or too large, or options cannot be used together or with PosGPT.
        """
        self._check_numbers()
        if self.use_cpu is None:
            # On a machine without an accelerator, processes would otherwise not know of each other.
            self.use_cpu = not torch.accelerator.is_available()
        if self.bf16 is None:
            self.bf16 = bf16_is_fast("cpu" if self.use_cpu else None) and not self.fp16
        if self.dataloader_num_workers is None:
            # A GPU is faster than one core reads rows of windows.
            gpus = 0 if self.use_cpu else torch.cuda.device_count()
            self.dataloader_num_workers = min(4, max(1, (os.cpu_count() or 1) // gpus)) if gpus else 0
        if self.report_to is None:
            self.report_to = "none"
        super().__post_init__()
        if self.dataloader_persistent_workers is None:
            # Starting them again can take longer than a short epoch.
            self.dataloader_persistent_workers = self.dataloader_num_workers > 0 and self.device.type != "cpu"
        if self.n_gpu > 1:
            # Trainer would use DataParallel, without bf16 and with as many times the rows per training step.
            logger.warning_once(
                f"One of {self.n_gpu} GPUs is used; accelerate launch --multi_gpu --num_processes {self.n_gpu} … uses all."
            )
            self._n_gpu = 1
        if self.total_train_batch_size is not None:
            shares = self._count_batches_per_step()
            self.per_device_train_batch_size, rest = divmod(self.total_train_batch_size, shares)
            if rest:
                raise BadInput(
                    f"total_train_batch_size {self.total_train_batch_size} is not a multiple of {shares}, the number of batches"
                    " that make up a training step; choose one."
                )
        self._check_schedule()
        self._check_data_loading()

    def _check_numbers(self) -> None:
        check_options(self)
        for each in fields(TrainingArguments):
            name, value = each.name, getattr(self, each.name)
            if name in _FIXED and value != each.default:
                raise BadInput(f"{name} has to stay {each.default}: {_FIXED[name]}; leave it out.")
            if isinstance(value, int | float) and not isinstance(value, bool) and value != each.default:
                Range(_LEAST.get(name, 0), _MOST.get(name)).check(name, value)

    def _check_schedule(self) -> None:
        if self.max_steps <= 0 and not self.num_train_epochs:
            raise BadInput(
                f"num_train_epochs is {self.num_train_epochs}; choose a number above 0, or add --max_steps."
            )
        if self.final_tokens is not None and self.final_tokens <= self.warmup_tokens:
            raise BadInput(
                f"final_tokens is {self.final_tokens:,}; choose more than warmup_tokens, {self.warmup_tokens:,}."
            )
        if self.lr_schedule == "tokens" and self.dataloader_drop_last:
            raise BadInput("lr_schedule tokens counts every example; leave out dataloader_drop_last.")

    def _check_data_loading(self) -> None:
        strategy, cores = self.train_sampling_strategy, os.cpu_count() or 1
        if strategy not in EpochSampler.STRATEGIES:
            raise BadInput(f"train_sampling_strategy is {strategy!r}; choose {' or '.join(EpochSampler.STRATEGIES)}.")
        Range(0, cores).check("dataloader_num_workers", self.dataloader_num_workers)
        if self.dataloader_persistent_workers and self.device.type == "cpu":
            # Starting workers draws from the generator that drops values out on a CPU.
            raise BadInput(
                "dataloader_persistent_workers: on a CPU, dropout would draw other numbers than in a resumed training; leave it"
                " out."
            )
        accelerator = vars(self.accelerator_config)
        for name, refused in {"split_batches": True, "even_batches": False, "dispatch_batches": True}.items():
            if accelerator[name] is refused:
                raise BadInput(f"accelerator_config: {name} cannot be {refused} here; leave it out.")
        if "num_steps" in (accelerator["gradient_accumulation_kwargs"] or {}):
            raise BadInput("accelerator_config: num_steps is what --gradient_accumulation_steps is for; leave it out.")

    def choose_attention(self) -> str:
        """Return the attention implementation to train with.

        Raises:
            BadInput: it cannot train on this device.
        """
        device = self.device.type
        if self.attn_implementation == "flex_attention" and device in ("cpu", "mps"):
            name = {"cpu": "a CPU", "mps": "MPS"}[device]
            raise BadInput(f"attn_implementation: flex_attention has no gradients on {name}; choose eager or sdpa.")
        return self.attn_implementation or ("eager" if device == "cpu" else "sdpa")

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Return the number of steps in which the learning rate rises; a share of a short training is never all of it.

        transformers rounds a share up, so the one step of a training on a few pairs would have the rate 0.
        """
        steps = super().get_warmup_steps(num_training_steps)
        return steps if self.warmup_steps >= 1 else min(steps, num_training_steps - 1)


def check_before_reading(
    args: TrainingArguments, validation_file: Sequence[str] | None, question_files: Sequence[str] | None
) -> None:
    """Check what would otherwise be refused after the corpus has been read, which may take long.

    Raises:
        BadInput: a tracker is not installed, a file of questions is not there, or there is none to evaluate on.
    """
    try:
        for tracker in get_reporting_integration_callbacks(args.report_to):
            tracker()
    except (ValueError, ImportError, RuntimeError) as error:
        raise BadInput(f"report_to: {shorten_error(error)}; choose trackers that are installed, or none.") from None
    for file in (*(question_files or ()), *(validation_file or ())):
        check_is_file(file, "TSV of questions and answers")
    if not validation_file and (args.eval_strategy != "no" or args.eval_on_start):
        raise BadInput("there is nothing to evaluate on; add --validation_file, or leave evaluation out.")

"""The options of every training, beside transformers' own."""

import math
import os
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Annotated, Any, Literal

import torch
from transformers import TrainingArguments
from transformers.utils import logging

from data_scripts.epochs import EpochSampler
from data_scripts.errors import BadInput
from data_scripts.options import Range, option
from posgpt.training.hardware import bf16_is_fast

# The least that numbers of transformers' may be, where that is not 0.
_LEAST = {
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "num_train_epochs": 0.01,
    "max_steps": 1,
}
# That of NumPy's generator.
_MOST = {"seed": 2**32 - 1}
# What has to stay off, and why.
_FIXED = {
    "auto_find_batch_size": "it would change how many rows a training step reads (--gradient_accumulation_steps does not)",
    "dataloader_drop_last": "every epoch reads every example",
    "dataloader_persistent_workers": "it follows from the device and the number of workers",
    "ignore_data_skip": "a resumed training would read other rows than an uninterrupted one",
    "enable_jit_checkpoint": "it would end an interrupted training as if it were finished",
    "prediction_loss_only": "accuracy is measured, too",
    "use_liger_kernel": "its kernels are for other models",
    "label_names": "the labels are PosGPT's own",
    "hub_token": "a command line stays in the shell's history (log in with `hf auth login`, or set HF_TOKEN)",
    "accelerator_config.split_batches": "every step would read fewer rows",
    "accelerator_config.dispatch_batches": "one process would read for all",
}

logger = logging.get_logger(__name__)


@dataclass
class PosGPTTrainingArguments(TrainingArguments):
    """transformers' TrainingArguments with defaults for this machine, and PosGPT's own options."""

    _argument_group_name = "training"

    # Empty: transformers would write into a folder `trainer_output` that nobody asked for.
    output_dir: str = option("The folder for the model and its checkpoints.", default="")
    # On a machine without an accelerator, processes would otherwise not know of each other.
    use_cpu: bool = option("Whether to train on the CPU.", default=not torch.accelerator.is_available())
    # None until `__post_init__`; transformers' fields have no None.
    bf16: bool | None = option(  # type: ignore[assignment]
        "Whether to multiply matrices in bfloat16 (default: where the hardware has instructions for it, without fp16).",
        default=None,
    )
    dataloader_num_workers: int | None = option(  # type: ignore[assignment]
        "How many processes read the data, besides the training's own (default: 0; with GPUs at most 4 for each).",
        default=None,
    )
    # Every parameter has a gradient, and buffers are constants.
    ddp_find_unused_parameters: bool | None = False
    ddp_broadcast_buffers: bool | None = False
    attn_implementation: Literal["eager", "sdpa", "flex_attention"] | None = option(
        "flex_attention is for CUDA (default: sdpa; on a CPU eager, faster for short sequences).", default=None
    )
    train_sampling_strategy: str = option(
        "The order of the examples.", default="random", choices=list(EpochSampler.STRATEGIES)
    )
    resume_from_checkpoint: str | None = option(
        "Where to resume: `last`, the newest checkpoint that is intact; `auto`, the same, but training"
        " starts from scratch if there is none, and nothing is done if the model is finished; or a checkpoint's folder.",
        default=None,
    )
    overwrite_output_dir: bool = option("Replace a model that is already there.", default=False)
    total_train_batch_size: Annotated[int | None, Range(1)] = option(
        "Rows per training step, of all processes and accumulated batches together; per_device_train_batch_size follows from"
        " it.",
        default=None,
    )
    sample_answers: Annotated[int, Range(0)] = option(
        "How many validation questions are logged at each evaluation, as text, with the model's answers and the correct ones.",
        default=5,
    )
    first_shares: Annotated[list[float], Range(0, 1)] = option(
        "Training begins with a pass over each of these shares of the documents, smaller ones within larger ones. The passes"
        " replace the same number of examples of the first epochs: the facts of a few documents are learned sooner, and those"
        " of the rest then follow.",
        default_factory=list,
    )
    exposures: Annotated[float | None, Range(1)] = option(
        "In place of num_train_epochs: how often training reads each span that it asks for, on average, in as many epochs as"
        " that takes; in a small corpus more often, so that there are 600 training steps.",
        default=None,
    )
    minutes: Annotated[float | None, Range(0.1)] = option(
        "In place of num_train_epochs: how long training takes on this machine, by a few steps that are timed before it.",
        default=None,
    )
    use_muon: bool = option("Whether Muon trains the layers' matrices, and AdamW only the rest.", default=False)
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
        return self.per_device_train_batch_size * self.world_size * self.gradient_accumulation_steps

    def __post_init__(self):
        """Decide what follows from this machine, and refuse what transformers lets pass."""
        for each in fields(TrainingArguments):
            value = getattr(self, each.name)
            if type(value) in (int, float) and value != each.default:
                Range(_LEAST.get(each.name, 0), _MOST.get(each.name, math.inf)).check(each.name, value)
        if self.bf16 is None:
            self.bf16 = bf16_is_fast("cpu" if self.use_cpu else None) and not self.fp16
        if self.dataloader_num_workers is None:
            # A GPU is faster than one core reads rows of windows.
            gpus = 0 if self.use_cpu else torch.cuda.device_count()
            self.dataloader_num_workers = min(4, max(1, (os.cpu_count() or 1) // gpus)) if gpus else 0
        super().__post_init__()
        for name, why in _FIXED.items():
            if attrgetter(name)(self):
                raise BadInput(f"{name} cannot be used: {why}; leave it out.")
        if not self.eval_do_concat_batches:
            raise BadInput("eval_do_concat_batches has to be true: accuracy is that of all questions together.")
        if self.attn_implementation is None:
            self.attn_implementation = "eager" if self.device.type == "cpu" else "sdpa"
        elif self.attn_implementation == "flex_attention" and self.device.type != "cuda":
            raise BadInput("flex_attention has no gradients except on CUDA; choose eager or sdpa, or leave it out.")
        # Starting workers can take longer than a short epoch. On a CPU, it draws from the generator of dropout: workers
        # that stayed would have a resumed training draw other numbers.
        self.dataloader_persistent_workers = self.dataloader_num_workers > 0 and self.device.type != "cpu"
        if self.n_gpu > 1:
            # Trainer would use DataParallel, without bf16 and with as many times the rows per training step.
            logger.warning_once(
                f"One of {self.n_gpu} GPUs is used; accelerate launch --multi_gpu --num_processes {self.n_gpu} … uses all."
            )
            self._n_gpu = 1
        if self.total_train_batch_size is not None:
            batches = self.world_size * self.gradient_accumulation_steps
            self.per_device_train_batch_size, rest = divmod(self.total_train_batch_size, batches)
            if rest:
                what = f"total_train_batch_size {self.total_train_batch_size} is not a multiple of {batches}"
                raise BadInput(f"{what}, the number of batches in a training step; choose one.")
        if self.final_tokens is not None and self.final_tokens <= self.warmup_tokens:
            raise BadInput(f"final_tokens is {self.final_tokens:,}; choose more than warmup_tokens.")

    def get_warmup_steps(self, num_training_steps: int) -> int:
        """Return transformers' number, but of a share never all steps: rounded up, a run of one step has the rate 0."""
        steps = super().get_warmup_steps(num_training_steps)
        return steps if self.warmup_steps >= 1 else min(steps, num_training_steps - 1)

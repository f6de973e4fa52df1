"""What the training steps share: recipes and arguments, loading and checking folders, and the Trainer they use."""

import json
import os
import re
import shutil
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import numpy as np
import psutil
import torch
import yaml
from datasets import Dataset
from huggingface_hub import ModelCard, ModelCardData
from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from torch import nn
from transformers import (
    AutoTokenizer,
    EvalPrediction,
    HfArgumentParser,
    PreTrainedTokenizerBase,
    ProgressCallback,
    Trainer,
    TrainingArguments,
    set_seed,
)
from transformers.trainer_pt_utils import get_parameter_names

from data_scripts.birthplaces import describe_unknown_characters, encode_birthplaces, load_birthplaces
from data_scripts.epochs import EpochDataset, EpochSampler
from data_scripts.text_files import BadInput, check_at_least, check_is_folder_or_new
from modeling_posgpt import BOTTLENECKS, POSITION_EMBEDDINGS, PosGPTConfig, PosGPTForCausalLM
from optimizers import MuonWithAdamW, bf16_is_fast

DEFAULT_RECIPE = Path(__file__).parent / "recipes" / "course.yaml"
WEIGHTS_FILE = "model.safetensors"


@dataclass
class ArchitectureArguments:
    """The model's sizes and choices; what is not given is `PosGPTConfig`'s default."""

    position_embedding_type: str | None = field(
        default=None,
        metadata={"help": f"How positions are encoded: {', '.join(POSITION_EMBEDDINGS)} (default: learned)."},
    )
    rope_parameters: dict | str | None = field(
        default=None,
        metadata={"help": 'rotary: transformers\' scaling, as JSON: {"rope_type": "linear", "factor": 4.0}.'},
    )
    position_share: float | None = field(
        default=None, metadata={"help": "concatenated: the position's share of hidden_size (default: 0.25)."}
    )
    relative_attention_max_distance: int | None = field(
        default=None, metadata={"help": "relative_bias: distances beyond it count as it (default: the block less 1)."}
    )
    bottleneck_size: int | None = field(
        default=None,
        metadata={"help": "How many latents a sequence is read through (default: none, it is read itself)."},
    )
    bottleneck_type: str | None = field(
        default=None, metadata={"help": f"How: {', '.join(BOTTLENECKS)} (default: perceiver)."}
    )
    hidden_size: int | None = field(default=None, metadata={"help": "Width of the model (default: 256)."})
    num_hidden_layers: int | None = field(default=None, metadata={"help": "Number of blocks (default: 4)."})
    num_attention_heads: int | None = field(default=None, metadata={"help": "Heads a block (default: 8)."})
    block_size: int | None = field(
        default=None, metadata={"help": "The most characters a sequence may have (default: 128)."}
    )
    dropout: float | None = field(
        default=None, metadata={"help": "Dropout on embeddings, residuals and attention (default: 0.1)."}
    )
    attn_implementation: str | None = field(
        default=None,
        metadata={
            "help": "eager, sdpa or flex_attention (default: sdpa; on a CPU eager, faster for short sequences)."
        },
    )

    def __post_init__(self):
        if isinstance(self.rope_parameters, str):
            try:
                self.rope_parameters = json.loads(self.rope_parameters)
            except ValueError:
                raise BadInput(f"rope_parameters is {self.rope_parameters!r}; give a JSON object.") from None

    def config_values(self) -> dict:
        """The given ones, under `PosGPTConfig`'s names."""
        values = {
            "position_embedding_type": self.position_embedding_type,
            "rope_parameters": self.rope_parameters,
            "position_share": self.position_share,
            "relative_attention_max_distance": self.relative_attention_max_distance,
            "bottleneck_size": self.bottleneck_size,
            "bottleneck_type": self.bottleneck_type,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "max_position_embeddings": self.block_size,
            "embd_pdrop": self.dropout,
            "resid_pdrop": self.dropout,
            "attention_dropout": self.dropout,
        }
        return {name: value for name, value in values.items() if value is not None}

    def attention(self, training_args: TrainingArguments) -> str:
        """The attention implementation to train with."""
        return self.attn_implementation or ("eager" if training_args.device.type == "cpu" else "sdpa")


@dataclass
class PosGPTTrainingArguments(TrainingArguments):
    """transformers' TrainingArguments and the choice of Muon."""

    use_muon: bool = field(
        default=False, metadata={"help": "Muon for the blocks' matrices instead of AdamW, which keeps the rest."}
    )


class OneLineArgumentParser(HfArgumentParser):
    """transformers' parser, without the pages of usage that argparse prints before it says what is wrong."""

    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{message}; --help lists the arguments.")


def parse_into(parser: HfArgumentParser, argv: list[str]) -> tuple:
    """Parse a command line into the parser's dataclasses.

    Raises:
        BadInput: an argument does not exist, or its dataclass refuses the value.
    """
    try:
        return parser.parse_args_into_dataclasses(argv, look_for_args_file=False)
    except BadInput:
        raise
    except (ValueError, ImportError) as error:
        raise BadInput(f"an argument was refused: {_one_line(error)}") from None


def load_pairs(
    path: str, tokenizer: PreTrainedTokenizerBase, training_args: TrainingArguments
) -> tuple[Dataset, Dataset]:
    """Load and encode a TSV with answers; say which of its characters the tokenizer does not know.

    Returns:
        The pairs as text, and encoded (see `encode_birthplaces`).
    """
    with training_args.main_process_first():
        pairs = load_birthplaces(path, answers=True)
        encoded = encode_birthplaces(pairs, tokenizer, path)
    unknown = describe_unknown_characters([text for row in pairs for text in row.values()], tokenizer, path)
    if training_args.should_log:
        common = Counter(pairs["place"]).most_common(1)[0]
        print(f"{path}: {len(pairs):,} pairs, the most frequent place is {common[0]} ({common[1]:,} times).")
        if unknown:
            print(unknown)
    return pairs, encoded


def predicted_ids(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Keep the likeliest symbol at each position, so that evaluation need not hold all logits: (batch, length)."""
    return logits.argmax(dim=-1)


def answer_accuracy(prediction: EvalPrediction) -> dict[str, float]:
    """The share of rows whose every answer symbol is the likeliest given those before, as greedy decoding needs."""
    predicted, labels = prediction.predictions[:, :-1], prediction.label_ids[:, 1:]
    return {"accuracy": float(np.mean(np.all((predicted == labels) | (labels == -100), axis=1)))}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def parse_arguments(dataclass_types: list[type], section: str, argv: list[str] | None = None) -> tuple:
    """Read `[recipe.yaml] --argument value ...` into dataclasses; the command line overrides the recipe.

    Args:
        dataclass_types: What `HfArgumentParser` fills; TrainingArguments last.
        section: The recipe's part that holds this step's arguments.
        argv: The command line without the program (default: this program's).

    Raises:
        BadInput: the recipe cannot be read, has no such section or names an argument that does not exist; or a value
            is refused.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    recipe = Path(argv.pop(0)) if argv and argv[0].endswith((".yaml", ".yml")) else DEFAULT_RECIPE
    # An abbreviated argument would be taken here and not seen by who looks for it on the command line.
    parser = OneLineArgumentParser(dataclass_types, allow_abbrev=False)
    bf16 = bf16_is_fast() and not any(argument.split("=")[0] == "--fp16" for argument in argv)
    parser.set_defaults(bf16=bf16, use_cpu=bf16 and not torch.accelerator.is_available())
    # Pushing at every save would put unfinished weights where the finished ones belong.
    parser.set_defaults(hub_strategy="end")

    values = _recipe_section(recipe, section)
    actions = {action.dest: action for action in parser._actions}
    for name, value in values.items():
        if name not in actions:
            raise BadInput(f"{recipe}: {name!r} under {section!r} is not an argument of this step; see --help.")
        actions[name].required = False
        parser.set_defaults(**{name: value})
    parsed = parse_into(parser, argv)
    training_args = parsed[-1]
    check_at_least(
        1,
        per_device_train_batch_size=training_args.per_device_train_batch_size,
        per_device_eval_batch_size=training_args.per_device_eval_batch_size,
    )
    check_at_least(0, seed=training_args.seed, data_seed=training_args.data_seed)
    if int(os.environ.get("RANK", 0)) == 0:
        print(f"Recipe: {recipe}, section {section!r}; command line: {' '.join(argv) or 'nothing more'}", flush=True)
    return parsed


def _recipe_section(recipe: Path, section: str) -> dict:
    try:
        sections = yaml.safe_load(recipe.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(f"{recipe}: no such recipe; the ones that come with PosGPT lie in recipes/.") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise BadInput(f"{recipe}: not a YAML file that can be read: {_one_line(error)}") from None
    values = sections.get(section) if isinstance(sections, dict) else None
    if not isinstance(values, dict):
        raise BadInput(f"{recipe}: has no section {section!r} with arguments; see recipes/course.yaml for the form.")
    return values


def last_checkpoint(output_dir: Path) -> Path | None:
    """The newest checkpoint in a folder that was written to its end."""
    # Trainer writes its state last: a checkpoint without it was interrupted while being written.
    whole = [file.parent for file in output_dir.glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda folder: int(folder.name.split("-")[-1]), default=None)


def starting_checkpoint(training_args: TrainingArguments, overwrite_output_dir: bool) -> str | None:
    """Check that the output folder may be written to; return the checkpoint to resume from, None to start anew.

    Raises:
        BadInput: the folder holds a finished model or an unfinished run and nothing was said about it, or the
            checkpoint to resume from is not there.
    """
    output_dir, resume = check_is_folder_or_new(training_args.output_dir), training_args.resume_from_checkpoint
    if (output_dir / WEIGHTS_FILE).exists() and not overwrite_output_dir:
        raise BadInput(
            f"{output_dir}: already holds a finished model; give another --output_dir, or --overwrite_output_dir to"
            " replace it."
        )
    if resume:
        checkpoint = last_checkpoint(output_dir) if str(resume).lower() in ("true", "last") else resume
        if checkpoint is None or not (Path(checkpoint) / "trainer_state.json").is_file():
            raise BadInput(
                f"{checkpoint or output_dir}: no checkpoint to resume from; give a folder named checkpoint-STEP, or"
                " leave --resume_from_checkpoint out to start anew."
            )
        return str(checkpoint)
    if any(output_dir.glob("checkpoint-*")) and not overwrite_output_dir:
        raise BadInput(
            f"{output_dir}: holds an unfinished run; --resume_from_checkpoint last goes on with it,"
            " --overwrite_output_dir starts anew."
        )
    return None


def new_model(
    architecture: ArchitectureArguments, tokenizer: PreTrainedTokenizerBase, training_args: TrainingArguments
) -> PosGPTForCausalLM:
    """Initialise a model from the seed.

    Raises:
        BadInput: the sizes do not go together, or there is no such attention implementation.
    """
    set_seed(training_args.seed)
    try:
        config = PosGPTConfig(vocab_size=len(tokenizer), **architecture.config_values())
        return PosGPTForCausalLM._from_config(config, attn_implementation=architecture.attention(training_args))
    except (StrictDataclassError, ValueError, KeyError, ImportError) as error:
        raise BadInput(f"the model cannot be built: {_one_line(error.__cause__ or error)}") from None


def peak_memory_mib() -> float:
    """The most of the machine's memory that this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Linux' ru_maxrss begins at the parent's; this does not.
        return int(re.search(r"^VmHWM:\s+(\d+) kB", status.read_text(), re.M)[1]) / 1024
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset / 2**20
    import resource

    # Bytes on macOS.
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def load_model(name_or_path: str, **from_pretrained_arguments) -> tuple[PosGPTForCausalLM, PreTrainedTokenizerBase]:
    """Load a saved PosGPT and its tokenizer from a folder or the hub.

    Raises:
        BadInput: there is no such model, or it is not a PosGPT.
    """
    folder = Path(name_or_path)
    if folder.exists():
        config_file = folder / "config.json"
        try:
            model_type = json.loads(config_file.read_text(encoding="utf-8")).get("model_type")
        except (OSError, ValueError, AttributeError):
            raise BadInput(
                f"{folder}: not a model folder (no readable config.json); give what training wrote."
            ) from None
        if model_type != PosGPTConfig.model_type:
            raise BadInput(f"{folder}: holds a {model_type!r} model, not a PosGPT; give a folder train_*.py wrote.")
    try:
        model = PosGPTForCausalLM.from_pretrained(name_or_path, **from_pretrained_arguments)
        tokenizer = AutoTokenizer.from_pretrained(name_or_path)
    except (OSError, ValueError, RuntimeError, ImportError, SafetensorError, StrictDataclassError) as error:
        reason = _one_line(error.__cause__ or error)
        raise BadInput(f"{name_or_path}: no PosGPT could be loaded from there: {reason}") from None
    return model, tokenizer


class FiguresProgressCallback(ProgressCallback):
    """Transformers' progress bar with the newest figures behind it instead of a line of them at every log."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is not None and logs:
            shown = ("epoch", "loss", "learning_rate", "eval_loss", "eval_accuracy")
            self.training_bar.set_postfix({name: f"{float(logs[name]):.4g}" for name in shown if name in logs})


class PosGPTTrainer(Trainer):
    """Trainer with span corruption's order, weight decay on matrices only, PosGPT's model card and a whole last save.

    Args:
        card_facts: Lines of the model card: a name and what to say of it.
    """

    def __init__(self, model: PosGPTForCausalLM, args: TrainingArguments, card_facts: dict[str, str], **kwargs):
        # What the collators read beside the model's own inputs would be dropped as unused.
        args.remove_unused_columns = False
        # Counting waits for an accelerator at every step; on a CPU it is free. Padding is nothing that was read.
        if args.device.type == "cpu" or args.include_num_input_tokens_seen != "no":
            args.include_num_input_tokens_seen = "non_padding"
        try:
            super().__init__(model, args, **kwargs)
        except (ValueError, ImportError) as error:
            raise BadInput(f"these arguments do not go together: {_one_line(error)}") from None
        self.card_facts = card_facts
        self.remove_callback(ProgressCallback)
        if not self.args.disable_tqdm:
            self.add_callback(FiguresProgressCallback)

    def _get_train_sampler(self, train_dataset=None):
        dataset = self.train_dataset if train_dataset is None else train_dataset
        if isinstance(dataset, EpochDataset):
            grouped = self.args.train_sampling_strategy == "group_by_length"
            return EpochSampler(dataset, self._train_batch_size, grouped)
        return super()._get_train_sampler(train_dataset)

    def _track_num_input_tokens(self, inputs: dict) -> None:
        """Count what is not padding; Trainer would count the entries of a mask of any shape."""
        super()._track_num_input_tokens({"input_ids": inputs["input_ids"]})

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Linear layers' weights only: no biases, LayerNorms or embeddings (minGPT's grouping, the task's too)."""
        return get_parameter_names(model, [nn.LayerNorm, nn.Embedding], [r"bias"])

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """Trainer's, or with `use_muon` Muon for the blocks' matrices and AdamW for the rest."""
        if not self.args.use_muon or self.optimizer is not None:
            return super().create_optimizer(model)
        # The output layer is a table of symbols, as the embeddings are: not for Muon, says its author.
        head = self.model.get_output_embeddings().weight
        decayed = set(self.get_decay_parameter_names(self.model))
        matrices, others = [], []
        for name, parameter in self.model.named_parameters():
            (matrices if name in decayed and parameter is not head else others).append(parameter)
        self.optimizer = MuonWithAdamW(
            matrices,
            others,
            lr=self.args.learning_rate,
            weight_decay=self.args.weight_decay,
            betas=(self.args.adam_beta1, self.args.adam_beta2),
            eps=self.args.adam_epsilon,
            newton_schulz_dtype=torch.bfloat16 if bf16_is_fast(self.args.device) else torch.float32,
        )
        return self.optimizer

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save weights, configuration, code, tokenizer and model card."""
        # Trainer turned the cache off for training; who loads the model wants it.
        self.model.config.use_cache = True
        super().save_model(output_dir, _internal_call=_internal_call)
        self.model.config.use_cache = self.args.use_cache
        if self.args.should_save:
            self._write_model_card(Path(output_dir or self.args.output_dir))

    def create_model_card(self, *args, **kwargs) -> None:
        """Called when pushing to the hub; Trainer's own would call the model a fine-tuned version of something."""
        self._write_model_card(Path(self.args.output_dir))

    def _write_model_card(self, folder: Path) -> None:
        config, state = self.model.config, self.state
        read = f", {state.num_input_tokens_seen:,} characters" if state.num_input_tokens_seen else ""
        losses = [entry["loss"] for entry in state.log_history if "loss" in entry]
        accuracies = [entry["eval_accuracy"] for entry in state.log_history if "eval_accuracy" in entry]
        facts = {
            "Positions": f"`{config.position_embedding_type}`",
            "Size": f"{config.num_hidden_layers} layers, {config.num_attention_heads} heads, {config.hidden_size}"
            f" dimensions, block {config.max_position_embeddings}, {config.vocab_size} symbols:"
            f" {self.model.num_parameters():,} parameters",
            **self.card_facts,
            "Training": f"{state.global_step} steps ({state.epoch or 0:.4g} epochs{read}), peak learning rate"
            f" {self.args.learning_rate:g}, seed {self.args.seed}",
            **({"Training loss": f"{losses[-1]:.4f} nats a character, the last logged"} if losses else {}),
            **({"Validation accuracy": f"{accuracies[-1]:.1%} (exact match)"} if accuracies else {}),
        }
        lines = [
            "# PosGPT",
            "",
            "A small character-level GPT for closed-book questions about birthplaces, trained from scratch.",
            "",
            *(f"- **{name}:** {fact}" for name, fact in facts.items()),
            "",
            "```python",
            "from transformers import AutoModelForCausalLM, AutoTokenizer",
            "",
            'folder = "."  # this folder, or its name on the hub',
            "model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)",
            "tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)",
            'question = tokenizer("Where was Ada Example born?⁇", return_tensors="pt")',
            "answer = model.generate(**question, max_new_tokens=32)[0, question.input_ids.shape[1] :]",
            "print(tokenizer.decode(answer, skip_special_tokens=True))",
            "```",
            "",
            "It answers every question, also about people it has never read of: check what it says.",
        ]
        data = ModelCardData(library_name="transformers", pipeline_tag="text-generation", tags=["posgpt"])
        ModelCard(f"---\n{data.to_yaml()}\n---\n" + "\n".join(lines) + "\n").save(folder / "README.md")

    def run(self, checkpoint: str | None) -> None:
        """Train from the beginning or from a checkpoint, then save model, metrics and state into the output folder."""
        output_dir = Path(self.args.output_dir)
        if checkpoint is None and self.args.should_save:
            for folder in output_dir.glob("checkpoint-*"):
                shutil.rmtree(folder)
        result = self.train(resume_from_checkpoint=checkpoint)
        metrics = result.metrics | {"peak_memory_mib": peak_memory_mib()}
        if self.args.device.type == "cuda":
            metrics["peak_gpu_memory_mib"] = torch.cuda.max_memory_allocated() / 2**20
        self.log_metrics("train", metrics)
        self.save_metrics("train", metrics)
        self.save_state()
        # The weights are moved last, so that a folder that has them is finished.
        staging = output_dir / ".unfinished"
        self.save_model(str(staging))
        self.accelerator.wait_for_everyone()
        if self.args.should_save:
            for file in sorted(staging.iterdir(), key=lambda file: file.name == WEIGHTS_FILE):
                os.replace(file, output_dir / file.name)
            staging.rmdir()
        if self.args.push_to_hub:
            self.push_to_hub()

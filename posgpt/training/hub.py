"""A trained model's way to the hub: the repository is there before training, and the upload takes the finished folder."""

from pathlib import Path

from huggingface_hub import auth_check, create_branch, create_repo, upload_folder
from huggingface_hub.errors import HTTPError
from transformers import TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from data_scripts.errors import reraise_as_bad_input

# What the hub's client raises where it is refused, or cannot reach the hub.
_REFUSALS = (HTTPError, OSError, RuntimeError, ValueError)


def open_repository(args: TrainingArguments) -> str:
    """Create the repository `hub_model_id` and its branch `hub_revision`, where they are not there yet; return its name."""
    name = args.hub_model_id or Path(str(args.output_dir)).absolute().name
    fix = "log in with `hf auth login`, or leave --push_to_hub out and upload the model after training."
    with reraise_as_bad_input(f"{name}: cannot be written to on the hub", fix, *_REFUSALS):
        name = create_repo(name, private=args.hub_private_repo, exist_ok=True).repo_id
        # A repository that is there may be one that the user can only read.
        auth_check(name, write=True)
        if args.hub_revision:
            create_branch(name, branch=args.hub_revision, exist_ok=True)
    return name


def upload_model(args: TrainingArguments, name: str) -> None:
    """Upload the output folder without its checkpoints; it stays as it is where the hub refuses."""
    folder, checkpoints = str(args.output_dir), f"{PREFIX_CHECKPOINT_DIR}-*"
    branch = f" --revision {args.hub_revision}" if args.hub_revision else ""
    fix = f"upload it with: hf upload {name} {folder} . --exclude '{checkpoints}'{branch}"
    problem = f"{folder}: the model is saved, but could not be uploaded to {name}"
    with reraise_as_bad_input(problem, fix, *_REFUSALS):
        upload_folder(
            repo_id=name,
            folder_path=folder,
            revision=args.hub_revision,
            ignore_patterns=["_*", checkpoints],
            commit_message="End of training",
        )

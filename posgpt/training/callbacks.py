"""What training shows of its loss: the newest figures on the progress bar, spikes, and an end far above the lowest."""

import statistics
from collections.abc import Mapping, Sequence

from transformers import ProgressCallback, TrainerCallback
from transformers.utils import logging

# A logged loss above SPIKE times the median of the SPIKE_WINDOW before it is marked in the log.
SPIKE, SPIKE_WINDOW = 2.0, 20
# Training that ends with a logged loss this far above the lowest one, in nats per character, says so.
RISE = 0.3

logger = logging.get_logger(__name__)


def measure_spike(log_history: Sequence[Mapping[str, float]], loss: float) -> float | None:
    """Return how many times the median of the losses before it a loss is; None: not far above, or there are too few."""
    losses = [entry["loss"] for entry in log_history if "loss" in entry][-SPIKE_WINDOW:]
    if len(losses) < SPIKE_WINDOW or loss <= SPIKE * statistics.median(losses):
        return None
    return loss / statistics.median(losses)


class FiguresProgressCallback(ProgressCallback):
    """Transformers' progress bar with the newest figures on it instead of a new line of figures at every log."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training_bar is not None and logs:
            shown = ("epoch", "loss", "loss_spike", "learning_rate", "eval_loss", "eval_accuracy")
            self.training_bar.set_postfix({name: f"{float(logs[name]):.4g}" for name in shown if name in logs})


class RiseCallback(TrainerCallback):
    """Warns of a training that ends with a far higher loss than it once had: all its figures are finite, as any other's."""

    def on_train_end(self, args, state, control, **kwargs):
        logged = [(entry["loss"], entry["step"]) for entry in state.log_history if "loss" in entry]
        if not (logged and state.is_world_process_zero):
            return
        (lowest, step), (last, _) = min(logged), logged[-1]
        if last > lowest + RISE:
            logger.warning(
                f"{args.output_dir}: the loss is {last:.2f} at the end of training, and was {lowest:.2f} after step {step:,}."
                " Unless the data became harder in between (--first_shares), training has diverged; most often a lower"
                " --learning_rate helps."
            )

"""Muon for the matrices, AdamW for the rest, as one optimizer that Trainer can schedule, save and resume."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.trainer_pt_utils import get_parameter_names

from posgpt.training.arguments import PosGPTTrainingArguments
from posgpt.training.hardware import bf16_is_fast


def orthogonalize(
    updates: torch.Tensor, coefficients: tuple[float, float, float], steps: int, eps: float, dtype: torch.dtype
) -> torch.Tensor:
    """Bring all singular values of each matrix close to 1 by Newton-Schulz iterations (Jordan et al. 2024).

    An iteration is X <- P X with P = a I + b G + c G G and G = X X^T. All of X's successors are polynomials in the first G
    times X, and polynomials in G commute: in float32, the iterations are of the square G <- P G P alone, which saves a third of
    the work, and X is multiplied once, at the end. In bfloat16 that would lose too many of its eight bits.

    Args:
        updates: (matrices, rows, columns), at least as many columns as rows.
        coefficients: a, b, c.
        dtype: What the iterations multiply in. torch.optim.Muon always takes bfloat16, which CPUs without instructions
            for it multiply element by element (docs/results.md has figures).

    Returns:
        (matrices, rows, columns) in `dtype`.
    """
    a, b, c = coefficients
    matrices = updates.to(dtype, copy=True)
    matrices.div_(torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=eps))
    if dtype == torch.bfloat16:
        for _ in range(steps):
            gram = matrices @ matrices.mT
            gram_update = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
            matrices = torch.baddbmm(matrices, gram_update, matrices, beta=a)
        return matrices
    gram, product = matrices @ matrices.mT, None
    for step in range(steps):
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = factor if product is None else factor @ product
        if step < steps - 1:
            gram = factor @ (gram @ factor)
    return matrices if product is None else product @ matrices


def gather_shards(tensor: torch.Tensor) -> torch.Tensor:
    """Return the whole of a tensor whose shards may be on several processes."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_like(whole: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Shard what every process has whole as `tensor` is sharded, if it is."""
    if not isinstance(tensor, DTensor):
        return whole
    # Without a source, no process waits for another's.
    return distribute_tensor(whole, tensor.device_mesh, tensor.placements, src_data_rank=None)


class Muon(torch.optim.Muon):
    """torch.optim.Muon with a choice of the type that Newton-Schulz iterations multiply in.

    In bfloat16 a step is torch's own, up to how a batch of products rounds. Where weights are sharded (FSDP2), momenta are
    too, and each process orthogonalizes every update whole: a product of shards would wait for the network in every
    iteration.

    Args:
        params, lr, weight_decay: As torch.optim.Muon's; updates are scaled to AdamW's size (`match_rms_adamw`).
        newton_schulz_dtype: torch.bfloat16 or torch.float32.
        stacked: For each of `params`, how many matrices it holds one upon the other, such as those of queries, keys and
            values. Each is orthogonalized by itself. By default one.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        newton_schulz_dtype: torch.dtype,
        stacked: Sequence[int] | None = None,
    ):
        super().__init__(params, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        (group,) = self.param_groups
        # In the group they are part of the state; sharded states hold no types, but names.
        group["newton_schulz_dtype"] = str(newton_schulz_dtype).removeprefix("torch.")
        group["stacked"] = list(stacked or [1] * len(group["params"]))

    @torch.no_grad()
    def step(self, closure=None):
        """Update all matrices (Jordan et al. 2024; the scale: Liu et al. 2025, arXiv 2502.16982, eq. 4)."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            matrices: list[torch.Tensor] = []
            gradients: list[torch.Tensor] = []
            momenta: list[torch.Tensor] = []
            self._init_group(group, matrices, gradients, momenta)
            pairs = zip(group["params"], group["stacked"], strict=True)
            counts = [count for matrix, count in pairs if matrix.grad is not None]
            # Matrices of one shape, lying or standing, are one batch.
            batches: dict[tuple[int, ...], list[tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]]] = {}
            for member in zip(matrices, gradients, momenta, counts, strict=True):
                (rows, columns), count = member[0].shape, member[3]
                batches.setdefault(tuple(sorted((rows // count, columns))), []).append(member)
            for (shorter, longer), members in batches.items():
                parts: list[torch.Tensor] = []
                for _, gradient, momentum, count in members:
                    momentum.lerp_(gradient, 1 - group["momentum"])
                    update = gather_shards(gradient.lerp(momentum, group["momentum"]))
                    parts += [part if len(part) == shorter else part.T for part in update.chunk(count)]
                results = orthogonalize(
                    torch.stack(parts),
                    group["ns_coefficients"],
                    group["ns_steps"],
                    group["eps"],
                    getattr(torch, group["newton_schulz_dtype"]),
                )
                for matrix, _, _, count in members:
                    own, results = results[:count], results[count:]
                    update = (own if matrix.shape[1] == longer else own.mT).flatten(0, 1)
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.add_(shard_like(update, matrix), alpha=-group["lr"] * 0.2 * math.sqrt(longer))
        return loss


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) on the layers' matrices, AdamW on the rest.

    Muon's update is scaled to AdamW's size (Liu et al. 2025, arXiv 2502.16982), so that one learning rate serves both.
    On rarely seen facts it learns faster than Adam (Wang et al. 2025, arXiv 2509.26030).

    Args:
        matrices: Two-dimensional weights of linear layers.
        others: Embeddings, the output layer, biases and norms, or AdamW's parameter groups of them; a group has no weight
            decay but its own.
        lr: The peak learning rate of both.
        weight_decay: Of the matrices.
        betas, eps: AdamW's.
        newton_schulz_dtype: What Muon multiplies in. It is part of the state: a resumed run keeps the type that it began
            with, whichever machine it continues on.
        stacked: For each of `matrices`, how many it holds one upon the other (see `Muon`). A resumed run keeps this, too: one
            that was saved before there was a choice has one each.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
        newton_schulz_dtype: torch.dtype,
        stacked: Sequence[int] | None = None,
    ):
        self.muon = Muon(matrices, lr, weight_decay, newton_schulz_dtype, stacked)
        self.adamw = torch.optim.AdamW(others, lr=lr, weight_decay=0.0, betas=betas, eps=eps, fused=True)
        # Schedules look for the rate among the defaults.
        super().__init__([*self.muon.param_groups, *self.adamw.param_groups], {"lr": lr})
        self._share()

    def _share(self) -> None:
        """Give the two optimizers this one's groups and state: what a scheduler or a checkpoint writes into them, both read."""
        self.muon.param_groups, self.adamw.param_groups = self.param_groups[:1], self.param_groups[1:]
        self.muon.state = self.adamw.state = self.state

    @torch.no_grad()
    def step(self, closure=None):
        loss = None if closure is None else torch.enable_grad()(closure)()
        self.muon.step()
        self.adamw.step()
        return loss

    def load_state_dict(self, state_dict: dict) -> None:
        group, *others = state_dict["param_groups"]
        whole = {"stacked": [1] * len(group["params"])}
        super().load_state_dict({**state_dict, "param_groups": [whole | group, *others]})
        self._share()


def list_matrix_names(model: nn.Module) -> list[str]:
    """Return the names of linear layers' weights (minGPT's grouping)."""
    return [f"{name}.weight" for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def list_decayed_names(model: nn.Module, decayed_parameters: str) -> list[str]:
    """Return which parameters weight decay is for, as `PosGPTTrainingArguments.decayed_parameters` says."""
    if decayed_parameters == "all_but_biases":
        return get_parameter_names(model, [], [r"bias$"])
    return list_matrix_names(model)


def build_muon(model: Any, args: PosGPTTrainingArguments) -> MuonWithAdamW:
    """Build the optimizer of a PosGPT: Muon for the layers' matrices, AdamW for the rest."""
    # Of the rest, AdamW decays nothing, or all but biases.
    decays_more = args.decayed_parameters == "all_but_biases"
    decayed_names = set(list_decayed_names(model, args.decayed_parameters)) if decays_more else set()
    # The output layer is a table of symbols, as the embeddings are; Muon's author advises against Muon for both.
    head, matrix_names = model.get_output_embeddings().weight, set(list_matrix_names(model))
    # Processes that chose each for itself would train different models.
    (dtype,) = broadcast_object_list([torch.bfloat16 if bf16_is_fast(args.device) else torch.float32])
    matrices: list[nn.Parameter] = []
    stacked: list[int] = []
    others: list[nn.Parameter] = []
    decayed_others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if name in matrix_names and parameter is not head:
            matrices.append(parameter)
            # Queries', keys' and values' in one.
            stacked.append(3 if name.endswith("qkv_proj.weight") else 1)
        else:
            (decayed_others if name in decayed_names else others).append(parameter)
    groups: list[dict[str, Any]] = [{"params": others}, {"params": decayed_others, "weight_decay": args.weight_decay}]
    return MuonWithAdamW(
        matrices,
        # One group where AdamW decays nothing: optimizer states saved by earlier versions have no second one.
        groups if decayed_others else groups[:1],
        lr=args.learning_rate,
        weight_decay=args.weight_decay,
        betas=(args.adam_beta1, args.adam_beta2),
        eps=args.adam_epsilon,
        newton_schulz_dtype=dtype,
        stacked=stacked,
    )

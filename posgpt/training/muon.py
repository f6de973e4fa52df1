"""Muon for the matrices, AdamW for the rest, as one optimizer that Trainer can schedule, save and resume."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from torch import nn
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers.trainer_pt_utils import get_parameter_names

from modeling_posgpt import PositionEncoding
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
            for it multiply element by element (docs/results.md has figures). The result has this type, too.
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


class Muon(torch.optim.Muon):
    """torch.optim.Muon with a choice of the type that Newton-Schulz iterations multiply in.

    In bfloat16 a step is torch's own, up to how a batch of products rounds, but it overwrites the gradients. Updates are scaled
    to AdamW's size. Where weights are sharded (FSDP2), momenta are too, and each process orthogonalizes every update whole: a
    product of shards would wait for the network in every iteration.

    Args:
        stacked: For each of `params`, how many matrices it holds one upon the other, such as those of queries, keys and
            values. Each is orthogonalized by itself. By default one.
    """

    def __init__(
        self, params: list[Any], lr: float, weight_decay: float, dtype: torch.dtype, stacked: Sequence[int] = ()
    ):
        super().__init__(params, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        (group,) = self.param_groups
        # In the group they are part of the state; sharded states hold no types, but names.
        group["newton_schulz_dtype"] = str(dtype).removeprefix("torch.")
        group["stacked"] = list(stacked or [1] * len(group["params"]))

    @torch.no_grad()
    def step(self, closure=None):
        """Update all matrices (Jordan et al. 2024; the scale: Liu et al. 2025, arXiv 2502.16982, eq. 4)."""
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            tensors: tuple[list, list, list] = ([], [], [])
            self._init_group(group, *tensors)
            matrices, gradients, momenta = tensors
            if not matrices:
                continue
            pairs = zip(group["params"], group["stacked"], strict=True)
            counts = [count for matrix, count in pairs if matrix.grad is not None]
            # Operations on lists, torch.optim's own: on a GPU, each of a step's many small operations takes time to be launched.
            torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
            # In place: DTensor has no `_foreach_lerp` that returns new tensors.
            torch._foreach_lerp_(gradients, momenta, group["momentum"])
            torch._foreach_mul_(matrices, 1 - group["lr"] * group["weight_decay"])
            # Matrices of one shape, lying or standing, are one batch.
            batches: dict[tuple[int, ...], list[tuple]] = {}
            for entry in zip(matrices, gradients, counts, strict=True):
                (rows, columns), count = entry[0].shape, entry[2]
                batches.setdefault(tuple(sorted((rows // count, columns))), []).append(entry)
            for (shorter, longer), entries in batches.items():
                parts: list[torch.Tensor] = []
                for _, update, count in entries:
                    update = update.full_tensor() if isinstance(update, DTensor) else update
                    parts += [part if len(part) == shorter else part.T for part in update.chunk(count)]
                iterations = group["ns_coefficients"], group["ns_steps"], group["eps"]
                results = orthogonalize(torch.stack(parts), *iterations, getattr(torch, group["newton_schulz_dtype"]))
                for matrix, _, count in entries:
                    own, results = results[:count], results[count:]
                    update = (own if matrix.shape[1] == longer else own.mT).flatten(0, 1)
                    if isinstance(matrix, DTensor):
                        # Without a source, no process waits for another's.
                        update = distribute_tensor(update, matrix.device_mesh, matrix.placements, src_data_rank=None)
                    matrix.add_(update, alpha=-group["lr"] * 0.2 * math.sqrt(longer))
        return loss


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) on the layers' matrices, AdamW on the rest.

    Muon's update is scaled to AdamW's size (Liu et al. 2025, arXiv 2502.16982), so that one learning rate serves both.
    On rarely seen facts it learns faster than Adam (Wang et al. 2025, arXiv 2509.26030). Muon's choices are part of
    the state: a resumed run keeps those that it began with, whichever machine it continues on. One that was saved before matrices
    could be stacked has one each.
    """

    def __init__(self, muon: Muon, adamw: torch.optim.AdamW):
        self.muon, self.adamw = muon, adamw
        # Schedules look for the rate among the defaults.
        super().__init__([*muon.param_groups, *adamw.param_groups], {"lr": muon.defaults["lr"]})
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
    """Return the names of linear layers' weights (minGPT's grouping); a position encoding says which of its own count."""
    encodings = {name: each for name, each in model.named_modules() if isinstance(each, PositionEncoding)}
    own = {f"{name}.{inner}" for name, each in encodings.items() for inner, _ in each.named_modules()}
    own -= {f"{name}.{inner}" for name, each in encodings.items() for inner in each.matrices}
    linear = [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    return [f"{name}.weight" for name in linear if name not in own]


def list_decayed_names(model: nn.Module, decayed_parameters: str) -> list[str]:
    """Return which parameters weight decay is for, as `PosGPTTrainingArguments.decayed_parameters` says."""
    if decayed_parameters == "all_but_biases":
        return get_parameter_names(model, [], [r"bias$"])
    return list_matrix_names(model)


def build_muon(model: Any, args: PosGPTTrainingArguments) -> MuonWithAdamW:
    """Build the optimizer of a PosGPT: Muon for the layers' matrices, AdamW for the rest."""
    # The output layer is a table of symbols, as the embeddings are; Muon's author advises against Muon for both.
    head, matrix_names = model.get_output_embeddings().weight, set(list_matrix_names(model))
    # Processes that chose each for itself would train different models.
    (dtype,) = broadcast_object_list([torch.bfloat16 if bf16_is_fast(args.device) else torch.float32])
    parameters = dict(model.named_parameters())
    matrices = {name: each for name, each in parameters.items() if name in matrix_names and each is not head}
    # Of the rest, AdamW decays nothing, or all but biases.
    names = list_decayed_names(model, args.decayed_parameters) if args.decayed_parameters == "all_but_biases" else []
    decayed = {name: parameters[name] for name in parameters if name in names and name not in matrices}
    others = [parameters[name] for name in parameters if name not in matrices and name not in decayed]
    groups: list[dict[str, Any]] = [{"params": others}]
    if decayed:
        # Optimizer states saved by earlier versions have no second group where AdamW decays nothing.
        groups.append({"params": list(decayed.values()), "weight_decay": args.weight_decay})
    # Queries', keys' and values' are one parameter.
    stacked = [3 if name.endswith("qkv_proj.weight") else 1 for name in matrices]
    adam: dict[str, Any] = {"betas": (args.adam_beta1, args.adam_beta2), "eps": args.adam_epsilon, "fused": True}
    return MuonWithAdamW(
        Muon(list(matrices.values()), args.learning_rate, args.weight_decay, dtype, stacked),
        torch.optim.AdamW(groups, args.learning_rate, weight_decay=0.0, **adam),
    )

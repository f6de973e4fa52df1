"""Muon for the matrices, AdamW for the rest, as one optimizer that Trainer can schedule, save and resume."""

from collections.abc import Iterable

import torch
from torch import nn


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/) on the blocks' matrices, AdamW on the rest.

    Muon's update is scaled to AdamW's size (Liu et al. 2025, arXiv 2502.16982), so that one learning rate serves both.
    On rarely seen facts it learns faster than Adam (Wang et al. 2025, arXiv 2509.26030).

    Args:
        matrices: Two-dimensional weights of linear layers.
        others: Embeddings, the output layer, biases and norms; they get no weight decay.
        lr: The peak learning rate of both.
        weight_decay: Of the matrices.
        betas, eps: AdamW's.
    """

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        others: Iterable[nn.Parameter],
        lr: float,
        weight_decay: float,
        betas: tuple[float, float],
        eps: float,
    ):
        self.muon = torch.optim.Muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
        self.adamw = torch.optim.AdamW(others, lr=lr, weight_decay=0.0, betas=betas, eps=eps, fused=True)
        # The groups are the two optimizers' own: what a scheduler writes into them, both read.
        super().__init__([*self.muon.param_groups, *self.adamw.param_groups], {})

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.muon.step()
        self.adamw.step()
        return loss

    def state_dict(self) -> dict:
        return {"muon": self.muon.state_dict(), "adamw": self.adamw.state_dict()}

    def load_state_dict(self, state_dict: dict) -> None:
        self.muon.load_state_dict(state_dict["muon"])
        self.adamw.load_state_dict(state_dict["adamw"])
        self.param_groups = [*self.muon.param_groups, *self.adamw.param_groups]

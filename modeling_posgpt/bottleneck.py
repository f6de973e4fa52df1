"""What latents see, and who sees them, when a sequence is read through fewer latents than tokens (`bottleneck_size`).

To add an arrangement, write a class that derives from `Bottleneck` and give it a line in the table.
"""

import torch


class Bottleneck:
    """An arrangement of m latents over positions 0, 1, 2, ...

    Latent i sees the tokens up to its limit, and the latents before it; a token sees the latents whose limit it has
    reached, so that nothing looks ahead.
    """

    @staticmethod
    def limits(bottleneck_size: int, block_size: int) -> torch.LongTensor:
        """(bottleneck_size,) the last position that each latent sees, rising from 0."""
        raise NotImplementedError

    @staticmethod
    def sees_rest(positions: torch.LongTensor, limits: torch.LongTensor) -> torch.BoolTensor | None:
        """Which tokens a token sees on the way up besides latents: (batch, queries, keys); None: none.

        `positions` is (batch, length).
        """
        return None


class PerceiverBottleneck(Bottleneck):
    """As the course has it, after the Perceiver (Jaegle et al. 2021, arXiv 2103.03206): latent i sees tokens 0 to i.

    The causal mask of a square attention, cut to m rows. Its flaw: no latent ever sees position m or what comes after it,
    and with short sequences most latents repeat each other. Kept for what was published with it.
    """

    @staticmethod
    def limits(bottleneck_size: int, block_size: int) -> torch.LongTensor:
        return torch.arange(bottleneck_size)


class StridedBottleneck(Bottleneck):
    """Latents spread over the whole block: latent i sees tokens 0 to i * s, with s the block divided by m, rounded up.

    On the way up a token sees the latents that it has reached and, of the tokens after the last one's limit, those not
    behind itself: all of its past, whatever m is.
    """

    @staticmethod
    def limits(bottleneck_size: int, block_size: int) -> torch.LongTensor:
        return torch.arange(bottleneck_size) * -(-block_size // bottleneck_size)

    @staticmethod
    def sees_rest(positions: torch.LongTensor, limits: torch.LongTensor) -> torch.BoolTensor:
        reached = torch.searchsorted(limits, positions.contiguous(), right=True) - 1
        queries, keys = positions[:, :, None], positions[:, None, :]
        return (keys > limits[reached][:, :, None]) & (keys <= queries)


BOTTLENECKS = {"perceiver": PerceiverBottleneck, "strided": StridedBottleneck}

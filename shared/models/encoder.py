"""A loaded network with its transform: uint8 images to float32 numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from shared.errors import UserError
from shared.models import Identity, fast

if TYPE_CHECKING:
    import numpy as np

    from shared.device import Choice


class Encoder:
    """`encode` = `prepare` (resize, normalise, move) then `forward` (the network); both can be called on their own.

    name, dim, preprocessing, revision, weights_sha256, stand_in: as in `Identity`. choice: what it really runs in.
    label_wnids, label_names: one a column for a classifier, else empty. `forward` is for one thread at a time;
    `prepare` may run in another. torch's out-of-memory errors go through to the caller.
    """

    def __init__(
        self,
        identity: Identity,
        module: nn.Module,
        choice: Choice,
        rebuild: Callable[[Choice], Encoder],
        *,
        compile: bool = False,
    ) -> None:
        """module: float [B, 3, h, w] to [B, dim], on `choice.device` in `choice.dtype`. rebuild: for `at`."""
        self.identity, self.choice = identity, choice
        self.name, self.dim, self.preprocessing = identity.name, identity.dim, identity.preprocessing
        self.revision, self.weights_sha256 = identity.revision, identity.weights_sha256
        self.stand_in = identity.stand_in
        self.label_wnids, self.label_names = identity.label_wnids, identity.label_names
        self.module = module.requires_grad_(False).eval()
        self.compiled = compile
        self._rebuild = rebuild
        self._run = fast.compiled(self.module) if compile else self.module
        self._batch = 0  # compiled: the one batch size that the code was made for
        # a convolution's fast kernels want the channel innermost; patches that do not overlap are a plain product
        convolutional = any(isinstance(m, nn.Conv2d) and m.stride != m.kernel_size for m in module.modules())
        self._format = torch.channels_last if convolutional else torch.contiguous_format

    def prepare(self, images: Tensor | Sequence[np.ndarray | Tensor]) -> Tensor:
        """uint8 [B, 3, H, W], or a sequence of uint8 [H, W, 3] of any sizes, to the network's input on the device."""
        x = self.identity.transform(images, self.choice.device)
        return x.to(self.choice.dtype, memory_format=self._format)

    def forward(self, x: Tensor) -> Tensor:
        """The network on `prepare`'s output: [B, 3, h, w] to float32 [B, dim], on the device."""
        rows = len(x)
        if self.compiled:
            # one shape, one compilation: a short last batch is filled up and cut off again
            self._batch = max(self._batch, rows)
            if rows < self._batch:
                x = torch.cat([x, x.new_zeros(self._batch - rows, *x.shape[1:])]).contiguous(memory_format=self._format)
        # cuDNN rounds float32 convolutions to TF32 unless it is told not to; float32 means float32 here
        try:
            with torch.inference_mode(), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                y = self._run(x)[:rows].float().contiguous()  # a view would keep every token of the batch alive
        except RuntimeError:
            self._batch = 0  # out of memory: the caller comes again with fewer
            raise
        if y.shape != (rows, self.dim):
            shapes = f"{list(y.shape)}, expected [{rows}, {self.dim}]"
            raise UserError(f"{self.name}: gave {shapes}; its settings do not fit it")
        return y

    def at(self, dtype: torch.dtype) -> Encoder:
        """The same model read again from its own weights, in another precision, not compiled."""
        return self._rebuild(replace(self.choice, dtype=dtype))

    def encode(self, images: Tensor | Sequence[np.ndarray | Tensor]) -> Tensor:
        """float32 [B, dim] on the CPU, of images as in `prepare`. An empty batch gives [0, dim]."""
        if len(images) == 0:
            return torch.empty(0, self.dim)
        return self.forward(self.prepare(images)).cpu()

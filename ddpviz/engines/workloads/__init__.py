"""Built-in workloads: each module has ``build(rank, world_size, device, **options)``.

``build`` returns (model, batch, loss), as a user's own function does. May import torch only.
"""

from __future__ import annotations

#: Names that ``Session.load`` knows, and the module of each.
WORKLOADS = {
    name: f"ddpviz.engines.workloads.{name}" for name in ("convnet", "gpt", "mlp", "resnet")
}

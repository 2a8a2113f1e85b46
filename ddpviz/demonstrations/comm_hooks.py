"""Comm hooks of a user's kind. DDP reads their annotations, which must not be texts."""

import torch
import torch.distributed as dist


def forgets_to_divide(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The sum over ranks, where DDP expects the average: with a hook nobody else divides."""
    future = dist.all_reduce(bucket.buffer(), async_op=True).get_future()
    return future.then(lambda done: done.value()[0])

"""PyTorch: optimal rates as a layer, a function of change rates and importances that gradients pass through.

freshopt does not need PyTorch. A loss on the rates reaches what predicts the change rates:

    rates = OptimalRates.apply(change_rate, importance, freshopt.problems.HarmonicStaleness(), 100.0)
    loss(rates).backward()
"""

import torch

import freshopt as fo


class OptimalRates(torch.autograd.Function):
    """Optimal rates as a function of change rates and importances."""

    @staticmethod
    def forward(ctx, change_rate, importance, objective, bandwidth):
        d, w = (x.detach().cpu().double().numpy() for x in (change_rate, importance))
        solution = fo.solve(fo.Problem(objective, fo.Sources(d, w), bandwidth))
        ctx.at, ctx.kind = solution.sensitivity(), {"dtype": change_rate.dtype, "device": change_rate.device}
        return torch.tensor(solution.rates, **ctx.kind)

    @staticmethod
    def backward(ctx, upstream):
        gradient = ctx.at.vjp(rates=upstream.cpu().double().numpy())
        found = (gradient.change_rate, gradient.importance)
        return *(torch.tensor(x, **ctx.kind) for x in found), None, None

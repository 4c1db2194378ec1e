"""The twelve formulations of the guide in plain CVXPY, from its data alone."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, TypeAlias

import cvxpy as cp
import numpy as np

Program: TypeAlias = Callable[[SimpleNamespace], cp.Problem]
PROGRAMS: dict[int, Program] = {}


def data_of(names: dict[str, Any]) -> SimpleNamespace:
    """Return the page's data, with the rate of each page, and what requests see of it at that rate."""
    d = SimpleNamespace(**names)
    d.rate = cp.Variable(d.n, nonneg=True)
    d.fresh = 1 - cp.multiply(d.change_rate, cp.inv_pos(d.change_rate + d.rate))
    d.stale = cp.logistic(np.log(d.change_rate) - cp.log(d.rate))
    d.delay = cp.multiply(d.change_rate, cp.inv_pos(d.rate))
    return d


def formulation(number: int) -> Callable[[Program], Program]:
    """Keep a program by its number."""

    def kept(program: Program) -> Program:
        PROGRAMS[number] = program
        return program

    return kept


def most_fresh(d: SimpleNamespace, *rules: cp.Constraint) -> cp.Problem:
    return cp.Problem(cp.Maximize(d.requests @ d.fresh), list(rules))


def promised(d: SimpleNamespace, floors: dict[str, float]) -> list[cp.Constraint]:
    return [
        d.requests[d.tier == t] @ d.fresh[d.tier == t] >= floor * d.requests[d.tier == t].sum()
        for t, floor in floors.items()
    ]


@formulation(1)
def two_budgets(d: SimpleNamespace) -> cp.Problem:
    return most_fresh(d, cp.sum(d.rate) <= 40, d.megabytes @ d.rate <= 20)


@formulation(2)
def regions(d: SimpleNamespace) -> cp.Problem:
    links = {"eu": 6.0, "us": 9.0, "asia": 9.0}
    used = (d.megabytes[d.region == r] @ d.rate[d.region == r] <= limit for r, limit in links.items())
    return most_fresh(d, cp.sum(d.rate) <= 40, *used)


@formulation(3)
def nested(d: SimpleNamespace) -> cp.Problem:
    limits = ((d.host, "host 4", 2), (d.host, "host 6", 3), (d.domain, "a.org", 7), (d.owner, "press", 19))
    at_most = (cp.sum(d.rate[groups == name]) <= limit for groups, name, limit in limits)
    return most_fresh(d, cp.sum(d.rate) <= 40, cp.sum(d.rate[d.domain == "d.com"]) >= 11, *at_most)


@formulation(4)
def floors(d: SimpleNamespace) -> cp.Problem:
    return most_fresh(d, cp.sum(d.rate) <= 60, *promised(d, {"news": 0.5, "docs": 0.95}))


@formulation(5)
def cheapest(d: SimpleNamespace) -> cp.Problem:
    return cp.Problem(cp.Minimize(cp.sum(d.rate)), [d.requests @ d.fresh >= 0.8 * d.requests.sum()])


@formulation(6)
def age(d: SimpleNamespace) -> cp.Problem:
    rules = [cp.sum(d.rate) <= 100, d.requests @ cp.exp(-3 * d.rate) <= 0.01 * d.requests.sum()]
    return cp.Problem(cp.Minimize(d.requests @ d.stale), rules)


@formulation(7)
def front(d: SimpleNamespace) -> cp.Problem:
    rules = [cp.sum(d.rate) <= 40, d.requests @ d.stale <= 0.475 * d.requests.sum()]
    return cp.Problem(cp.Minimize(d.requests @ d.delay), rules)


@formulation(8)
def fairest(d: SimpleNamespace) -> cp.Problem:
    worst = cp.Variable()
    levels = (
        d.requests[d.tier == t] @ d.fresh[d.tier == t] >= worst * d.requests[d.tier == t].sum()
        for t in set(d.tier)
    )
    return cp.Problem(cp.Maximize(worst), [cp.sum(d.rate) <= 36, d.rate <= 1.5, *levels])


@formulation(9)
def tied(d: SimpleNamespace) -> cp.Problem:
    sitemap = cp.Variable(12, nonneg=True)
    of_pages = cp.reshape(cp.vstack([sitemap] * 5), (d.n,), order="F")
    fresh = 1 - cp.multiply(d.change_rate, cp.inv_pos(d.change_rate + of_pages))
    return cp.Problem(cp.Maximize(d.requests @ fresh), [cp.sum(sitemap) <= 20])


@formulation(10)
def ratios(d: SimpleNamespace) -> cp.Problem:
    child = np.flatnonzero(np.arange(d.n) % 5)
    return most_fresh(d, cp.sum(d.rate) <= 40, d.rate[child] <= 2 * d.rate[child // 5 * 5])


@formulation(11)
def plain(d: SimpleNamespace) -> cp.Problem:
    quarter = cp.sum(d.rate[d.region == "us"]) <= 0.25 * cp.sum(d.rate)
    return most_fresh(d, cp.sum(d.rate) <= 38, quarter, cp.sum(cp.power(d.rate, 1.5)) <= 36)


@formulation(12)
def infeasible(d: SimpleNamespace) -> cp.Problem:
    rules = promised(d, {"news": 0.8, "blog": 0.3})
    return most_fresh(d, cp.sum(d.rate) <= 60, d.megabytes @ d.rate <= 20, *rules)

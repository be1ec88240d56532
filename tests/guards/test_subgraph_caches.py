from __future__ import annotations

from typing import Any

import pytest
import torch
from guards import HopDispatchSetCache, HopSubgraphCache, InvokeSubgraphCache


@pytest.fixture
def cache() -> InvokeSubgraphCache:
    return InvokeSubgraphCache()


def test_the_base_is_abstract() -> None:
    with pytest.raises(TypeError, match="abstract"):
        HopSubgraphCache()  # type: ignore[abstract]
    assert issubclass(InvokeSubgraphCache, HopSubgraphCache)


def test_submodules_come_in_order(cache: Any) -> None:
    assert cache.get_dynamo_installed_submodules(1) == []
    for name in ("b", "a", "b"):
        cache.add_dynamo_installed_submodule(1, name)
    cache.add_dynamo_installed_submodule("other", "c")
    assert cache.get_dynamo_installed_submodules(1) == ["b", "a", "b"]
    cache.get_dynamo_installed_submodules(1).clear()
    assert cache.get_dynamo_installed_submodules(1) == ["b", "a", "b"]
    assert cache.get_dynamo_installed_submodules("other") == ["c"]


@pytest.mark.parametrize("kind", ["autograd_key", "proxy_dispatch"])
def test_one_callable_for_each_identifier(cache: Any, kind: str) -> None:
    add, get = getattr(cache, f"add_{kind}_entry"), getattr(cache, f"get_{kind}_entry")
    assert get("x") is None
    add("x", len)
    add("y", max)
    assert (get("x"), get("y")) == (len, max)
    add("x", min)
    assert get("x") is min


def test_autograd_and_proxy_entries_are_apart(cache: Any) -> None:
    cache.add_autograd_key_entry("x", len)
    assert cache.get_proxy_dispatch_entry("x") is None


def test_backward_graphs_are_numbered_by_identifier(cache: Any) -> None:
    graph = [object() for _ in range(4)]
    assert cache.get_lazy_bwd_entry("x", ("m",)) == (None, None)
    assert cache.add_lazy_bwd_entry("x", ("m",), graph[0]) == 0
    assert cache.add_lazy_bwd_entry("x", ("n",), graph[1]) == 1
    assert cache.add_lazy_bwd_entry("y", ("m",), graph[2]) == 0
    assert cache.get_lazy_bwd_entry("x", ("m",)) == (graph[0], 0)
    assert cache.get_lazy_bwd_entry("x", ("n",)) == (graph[1], 1)
    assert cache.get_lazy_bwd_entry("x", ("o",)) == (None, None)
    # A graph that takes another's place does not make two later ones share a number.
    assert cache.add_lazy_bwd_entry("x", ("m",), graph[3]) == 2
    assert cache.add_lazy_bwd_entry("x", ("o",), graph[3]) == 3


def test_only_invoke_subgraph_has_a_cache() -> None:
    caches = HopDispatchSetCache()
    invoke_subgraph = torch.ops.higher_order.invoke_subgraph
    cache = caches.get_cache(invoke_subgraph)
    assert isinstance(cache, InvokeSubgraphCache)
    assert caches.get_cache(invoke_subgraph) is cache
    assert caches.get_cache(torch.ops.higher_order.cond) is None
    assert HopDispatchSetCache().get_cache(invoke_subgraph) is not cache

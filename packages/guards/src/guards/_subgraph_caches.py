"""What higher-order operators keep during one trace, so that a region is traced only once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import Any, ClassVar

__all__ = ["HopDispatchSetCache", "HopSubgraphCache", "InvokeSubgraphCache"]


class HopSubgraphCache(ABC):
    """What one higher-order operator keeps; an identifier names one subgraph."""

    @abstractmethod
    def add_dynamo_installed_submodule(self, fn_id: Hashable, identifier: str) -> None:
        """Remember one more submodule that was installed for a function."""

    @abstractmethod
    def get_dynamo_installed_submodules(self, fn_id: Hashable) -> list[str]:
        """Give the submodules installed for a function, in the order of installing."""

    @abstractmethod
    def add_autograd_key_entry(self, identifier: str, key: Callable[..., Any]) -> None:
        """Remember what the autograd key calls for a subgraph."""

    @abstractmethod
    def get_autograd_key_entry(self, identifier: str) -> Callable[..., Any] | None:
        """Give what the autograd key calls for a subgraph, None if it is new."""

    @abstractmethod
    def add_proxy_dispatch_entry(self, identifier: str, key: Callable[..., Any]) -> None:
        """Remember what proxy dispatch calls for a subgraph."""

    @abstractmethod
    def get_proxy_dispatch_entry(self, identifier: str) -> Callable[..., Any] | None:
        """Give what proxy dispatch calls for a subgraph, None if it is new."""

    @abstractmethod
    def add_lazy_bwd_entry(
        self, identifier: str, tangent_metadata: tuple[object, ...], gmod: Any
    ) -> int:
        """Remember a backward graph; give its running number among the subgraph's."""

    @abstractmethod
    def get_lazy_bwd_entry(
        self, identifier: str, tangent_metadata: tuple[object, ...]
    ) -> tuple[Any, int] | tuple[None, None]:
        """Give a backward graph for tangents of this kind and its number."""


class InvokeSubgraphCache(HopSubgraphCache):
    """What ``invoke_subgraph`` keeps."""

    def __init__(self) -> None:
        self.autograd_cache: dict[str, Callable[..., Any]] = {}
        self.proxy_dispatch_cache: dict[str, Callable[..., Any]] = {}
        self.dynamo_installed_submodules: dict[Hashable, list[str]] = {}
        self.lazy_bwd_cache: dict[str, dict[tuple[object, ...], tuple[Any, int]]] = {}
        self._lazy_bwd_count: dict[str, int] = {}

    def add_dynamo_installed_submodule(self, fn_id: Hashable, identifier: str) -> None:
        self.dynamo_installed_submodules.setdefault(fn_id, []).append(identifier)

    def get_dynamo_installed_submodules(self, fn_id: Hashable) -> list[str]:
        return list(self.dynamo_installed_submodules.get(fn_id, ()))

    def add_autograd_key_entry(self, identifier: str, key: Callable[..., Any]) -> None:
        self.autograd_cache[identifier] = key

    def get_autograd_key_entry(self, identifier: str) -> Callable[..., Any] | None:
        return self.autograd_cache.get(identifier)

    def add_proxy_dispatch_entry(self, identifier: str, key: Callable[..., Any]) -> None:
        self.proxy_dispatch_cache[identifier] = key

    def get_proxy_dispatch_entry(self, identifier: str) -> Callable[..., Any] | None:
        return self.proxy_dispatch_cache.get(identifier)

    def add_lazy_bwd_entry(
        self, identifier: str, tangent_metadata: tuple[object, ...], gmod: Any
    ) -> int:
        # Counted, not measured: a graph that replaces another one gets a number of its own.
        number = self._lazy_bwd_count.get(identifier, 0)
        self._lazy_bwd_count[identifier] = number + 1
        self.lazy_bwd_cache.setdefault(identifier, {})[tangent_metadata] = (gmod, number)
        return number

    def get_lazy_bwd_entry(
        self, identifier: str, tangent_metadata: tuple[object, ...]
    ) -> tuple[Any, int] | tuple[None, None]:
        return self.lazy_bwd_cache.get(identifier, {}).get(tangent_metadata, (None, None))


class HopDispatchSetCache:
    """The caches of those higher-order operators that have one."""

    _invoke_subgraph_cache: ClassVar[type[InvokeSubgraphCache]] = InvokeSubgraphCache

    def __init__(self) -> None:
        self.hop_cache_map: dict[Any, HopSubgraphCache] = {}

    def get_cache(self, op: Any) -> HopSubgraphCache | None:
        """Give the cache of ``invoke_subgraph``, None for any other operator."""
        if not self.hop_cache_map:
            from torch._higher_order_ops.invoke_subgraph import invoke_subgraph

            self.hop_cache_map[invoke_subgraph] = self._invoke_subgraph_cache()
        return self.hop_cache_map.get(op)

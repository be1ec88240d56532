"""What ``invoke_subgraph`` keeps, as torch has it: reuse, effects and schemas besides."""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Hashable
from typing import Any

import torch._guards as _installed

import guards

__all__ = [
    "HopDispatchSetCache",
    "HopSubgraphCache",
    "InvokeSubgraphCache",
    "InvokeSubgraphReuseCondition",
    "InvokeSubgraphReuseEntry",
]

# Records of Dynamo's own, without behaviour: as they are installed.
InvokeSubgraphReuseEntry = _installed.InvokeSubgraphReuseEntry
InvokeSubgraphReuseCondition = _installed.InvokeSubgraphReuseCondition

Reuse = tuple[InvokeSubgraphReuseCondition, InvokeSubgraphReuseEntry]


class HopSubgraphCache(guards.HopSubgraphCache, ABC):
    """What one higher-order operator keeps, with the schemas of its functionalized calls."""

    def add_functionalize_schema_entry(self, key: Hashable, schema: Any) -> None:
        """Remember the schema of a functionalized call."""
        raise NotImplementedError

    def get_functionalize_schema_entry(self, key: Hashable) -> Any:
        """Give the schema of a functionalized call, None if it is new."""
        raise NotImplementedError


class InvokeSubgraphCache(guards.InvokeSubgraphCache, HopSubgraphCache):
    """What ``invoke_subgraph`` keeps."""

    def __init__(self) -> None:
        super().__init__()
        self.functionalize_schema_cache: dict[Hashable, Any] = {}
        self.effects_cache: dict[str, set[Any]] = {}
        self.subgraph_reuse_cache: dict[Hashable, list[Reuse]] = {}
        self.subgraph_reuse_key_cache: dict[Hashable, dict[int, InvokeSubgraphReuseEntry]] = {}

    def add_functionalize_schema_entry(self, key: Hashable, schema: Any) -> None:
        self.functionalize_schema_cache[key] = schema

    def get_functionalize_schema_entry(self, key: Hashable) -> Any:
        return self.functionalize_schema_cache.get(key)

    def add_effects(self, identifier: str, effects: set[Any]) -> None:
        """Remember the kinds of effects of a subgraph.

        Raises:
            AssertionError: other effects are known; the type is the one that torch raises.
        """
        known = self.effects_cache.get(identifier)
        if known and known != effects:
            raise AssertionError(
                f"invoke_subgraph: the effects of {identifier} were {known} and are now {effects}; "
                "they must not differ from call to call"
            )
        self.effects_cache[identifier] = effects

    def get_effects(self, identifier: str) -> set[Any] | None:
        """Give the kinds of effects of a subgraph, None if it is new."""
        return self.effects_cache.get(identifier)

    def add_reuse_entry(
        self,
        fn_code: Hashable,
        condition: InvokeSubgraphReuseCondition,
        entry: InvokeSubgraphReuseEntry,
        max_reuse_entries: int = 8,
    ) -> None:
        """Remember a traced body and when it may be used again.

        Raises:
            RuntimeError: there are as many already as is allowed.
        """
        entries = self.subgraph_reuse_cache.setdefault(fn_code, [])
        if len(entries) >= max_reuse_entries:
            raise _too_many(
                fn_code,
                max_reuse_entries,
                "a guard seems to fail on every call; TORCH_LOGS='+hierarchical_compile' says "
                "which one",
            )
        entries.append((condition, entry))

    def find_reuse_entry(
        self,
        fn_code: Hashable,
        evaluator: Callable[[InvokeSubgraphReuseCondition, InvokeSubgraphReuseEntry], bool],
    ) -> InvokeSubgraphReuseEntry | None:
        """Give the first body whose condition holds, and look at it first the next time."""
        entries = self.subgraph_reuse_cache.get(fn_code, [])
        for position, (condition, entry) in enumerate(entries):
            if evaluator(condition, entry):
                entries.insert(0, entries.pop(position))
                return entry
        return None

    def add_reuse_entry_by_key(
        self,
        fn_code: Hashable,
        hash_key: int,
        entry: InvokeSubgraphReuseEntry,
        max_reuse_entries: int = 8,
    ) -> None:
        """Remember a traced body under the hash that the user gave it.

        Raises:
            RuntimeError: the hash is new and there are as many already as is allowed.
        """
        entries = self.subgraph_reuse_key_cache.setdefault(fn_code, {})
        if hash_key not in entries and len(entries) >= max_reuse_entries:
            raise _too_many(fn_code, max_reuse_entries, "reuse_hash_fn gives too many hashes")
        entries[hash_key] = entry

    def find_reuse_entry_by_key(
        self, fn_code: Hashable, hash_key: int
    ) -> InvokeSubgraphReuseEntry | None:
        """Give the body that was remembered under this hash."""
        return self.subgraph_reuse_key_cache.get(fn_code, {}).get(hash_key)


def _too_many(fn_code: Hashable, limit: int, cause: str) -> RuntimeError:
    return RuntimeError(
        f"invoke_subgraph: exceeded maximum reuse entries ({limit}) for function code {fn_code}: "
        f"{cause}; nested_compile_region(max_reuse_entries=...) raises the limit"
    )


class HopDispatchSetCache(guards.HopDispatchSetCache):
    """The caches of those higher-order operators that have one."""

    _invoke_subgraph_cache = InvokeSubgraphCache

"""Keep Python's cyclic garbage collection off while a call is watched."""

from __future__ import annotations

import gc
import threading

__all__ = ["GcPause"]

# A collection that begins within may watch a call of its own: the lock lets that thread back in.
_lock = threading.RLock()
_open = 0
_was_on = False


class GcPause:
    """Collection is off from the making of the first pause to the end of the last, in any thread.

    It is on again then if it was on before. The switch belongs to the whole process: where another
    thread turns collection off meanwhile, that is not noticed.
    """

    def __init__(self) -> None:
        global _open, _was_on
        with _lock:
            self._ended = False
            if _open == 0:
                _was_on = gc.isenabled()
                gc.disable()
            _open += 1

    def end(self) -> None:
        """End the pause, once."""
        global _open
        with _lock:
            if self._ended:
                return
            self._ended = True
            _open -= 1
            if _open == 0 and _was_on:
                gc.enable()

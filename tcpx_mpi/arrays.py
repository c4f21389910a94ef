"""numpy for modules that a launcher of ranks reads too: imported when it is used, not before.

The import is a fifth of the CPU time of a launcher (0.05 of 0.22 s), which uses nothing of it.
"""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Bools", "Float64s", "Int64s", "np"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:

    class _Numpy:
        def __getattr__(self, name: str) -> Any:
            import numpy

            value = self.__dict__[name] = getattr(numpy, name)
            return value

    np = _Numpy()

Int64s: TypeAlias = "NDArray[np.int64]"
Float64s: TypeAlias = "NDArray[np.float64]"
Bools: TypeAlias = "NDArray[np.bool_]"

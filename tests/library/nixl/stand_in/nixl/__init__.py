"""The package `nixl`, which is that of the wheel that is installed."""

import importlib
import sys

from nixl_cu12 import *  # noqa: F403  # all that it has

for _name in ("_api", "_bindings", "_utils", "logging"):
    sys.modules[f"nixl.{_name}"] = importlib.import_module(f"nixl_cu12.{_name}")

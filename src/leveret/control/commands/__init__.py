"""The commands, by what they are about. Each is a Command; importing this package makes them all known."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")

"""Built-in environments, one folder each; importing this package makes their ids known to `gymnasium.make`."""

import importlib
import pkgutil

for _folder in pkgutil.iter_modules(__path__):
    if _folder.ispkg:
        importlib.import_module(f"{__name__}.{_folder.name}").ENVIRONMENT.register()

"""A plugin of pytest: native code in the folder that KCAST_INSTRUMENTED names is used instead of ours."""

import importlib.util
import os
import sys
from pathlib import Path

for _file in sorted(Path(os.environ["KCAST_INSTRUMENTED"]).glob("*.so")):
    _package, _module, *_ = _file.name.split(".")
    _name = f"kcast.{_package}.{_module}"
    _spec = importlib.util.spec_from_file_location(_name, _file)
    assert _spec is not None and _spec.loader is not None
    sys.modules[_name] = importlib.util.module_from_spec(_spec)
    _spec.loader.exec_module(sys.modules[_name])
    print(f"instrumented: {_file.name}", file=sys.stderr)

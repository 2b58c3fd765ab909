"""What a service imports and loads when it starts, for ``tests/forked.py``."""

import gc

import whim.cli.app
import whim.cli.serve
import whim.serve.server  # noqa: F401
from whim.serve.starter import demo_config, personalizer_config
from whim.serve.state.policy import compile_for

for _config in (demo_config(), personalizer_config()):
    compile_for(_config)
gc.collect()
gc.freeze()  # what is there stays, in every process that is forked

"""No network, no trace in the user's caches and one core per process: to be imported before torch and any Hugging Face library."""

import atexit
import os
import shutil
import tempfile

import hub

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="posgpt-tests-")
# Any of the caches' own variables would win over HF_HOME.
os.environ |= {
    f"HF_{kind.upper()}_CACHE": os.path.join(os.environ["HF_HOME"], kind)
    for kind in ("assets", "datasets", "evaluate", "hub", "metrics", "modules")
}
# Compiled code depends on the machine's instruction set, and its cache outlives the machine's settings.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(os.environ["HF_HOME"], "inductor"))
os.environ["TQDM_DISABLE"] = "1"
# With more, tests that run side by side wait for each other, and sums are rounded otherwise than beside others.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# The hub is one on this machine, for the tests that start it.
os.environ |= {"HF_ENDPOINT": hub.ENDPOINT, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": hub.TOKEN}
atexit.register(shutil.rmtree, os.environ["HF_HOME"], ignore_errors=True)

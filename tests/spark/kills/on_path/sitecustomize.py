"""Imported by every Python process that has this directory on its path: driver, source, sink, workers."""

import os
import traceback

if "LEVERET_FAILPOINTS" in os.environ:
    try:
        import leveret_failpoints

        leveret_failpoints.install()
    except BaseException:
        # Python would ignore an error here, and then nothing would be killed
        traceback.print_exc()
        os._exit(70)

"""Imported by every Python process that has this directory on its path: driver, source, sink, workers."""

import os
import sys
import traceback

# Spark puts an archive without bytecode before the installed pyspark, which costs every process 1 s
sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]

if "LEVERET_FAILPOINTS" in os.environ:
    try:
        import leveret_failpoints

        leveret_failpoints.install()
    except BaseException:
        # Python would ignore an error here, and then nothing would be killed
        traceback.print_exc()
        os._exit(70)

"""Python imports this by itself in every process that has this directory on its path: driver, source, sink, workers."""

import os
import sys
import traceback

# Spark puts an archive without compiled files before the pyspark that is installed: 1 s more for every process
sys.path[:] = [path for path in sys.path if not path.endswith("/pyspark.zip")]

if "LEVERET_FAILPOINTS" in os.environ:
    try:
        import leveret_failpoints

        leveret_failpoints.install()
    except BaseException:
        # Python goes on without what fails here, and then nothing would be killed
        traceback.print_exc()
        os._exit(70)

"""Makes Spark's Python processes import the installed PySpark, which has bytecode.

Spark puts a zip of the same modules first on the path, and every Python process would compile them, a second each time.
"""

import sys
from importlib.machinery import PathFinder

places = [place for place in sys.path if not place.endswith("/python/lib/pyspark.zip")]
if PathFinder.find_spec("pyspark", places) is not None:
    sys.path[:] = places

"""Where Spark's Pythons find this, they take PySpark from where it is installed, and so with bytecode.

Spark puts a zip of the same modules first, and every Python that it starts would compile them: a second each time.
"""

import sys
from importlib.machinery import PathFinder

places = [place for place in sys.path if not place.endswith("/python/lib/pyspark.zip")]
if PathFinder.find_spec("pyspark", places) is not None:
    sys.path[:] = places

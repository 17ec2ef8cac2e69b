"""How punctual airlines are, and how large their aircraft: joins flights of a stream with aircraft data from a service.

    python examples/punctuality.py amqp://guest:guest@localhost:5672/ /data/punctuality leveret.demo.planes

The streams ``flights`` and ``flights.enriched`` and the demo's service must exist. When run again, it continues with
the flights that have arrived since.
"""

import sys

from leveret.pipelines import enrich
from leveret.pipelines.enriching.events import Events
from leveret.pipelines.enriching.lookups import Service
from leveret.spark import session

url, directory, planes = sys.argv[1:]
spark = session("punctuality")
enrich(
    spark,
    Events("flights", "carrier STRING, origin STRING, tailnum STRING, arr_delay INT"),
    "flights.enriched",
    url=url,
    service=Service(planes, "plane STRUCT<seats: INT>", request="to_json(struct(message_id AS id, flights.tailnum))"),
    select="flights.carrier, flights.origin, flights.arr_delay, reply.plane.seats",
    checkpoint=f"{directory}/checkpoint",
)
enriched = spark.read.format("leveret").options(url=url, stream="flights.enriched", parse="json").options(
    bodySchema="carrier STRING, origin STRING, arr_delay INT, seats INT"
)
table = enriched.load().groupBy("carrier", "origin").agg({"*": "count", "seats": "avg"})
late = enriched.load().where("coalesce(arr_delay >= 15, true)").groupBy("carrier", "origin").count()
table = table.join(late, ["carrier", "origin"], "left").selectExpr(
    "carrier", "origin", "`count(1)` AS flights", "round(1 - coalesce(count, 0) / `count(1)`, 4) AS punctuality",
    "round(`avg(seats)`, 1) AS seats_mean",
)  # fmt: skip
table.orderBy("carrier", "origin").coalesce(1).write.mode("overwrite").json(f"{directory}/punctuality")

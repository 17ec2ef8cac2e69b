"""leveret spark enrich: joins a stream with replies of a service and with other streams. See
docs/guides/spark/enrich.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leveret.cli.spark.running import Running, pipeline
from leveret.cli.urls import URL
from leveret.pipelines.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leveret.pipelines.reporter import Reporter

JOIN = ("join", "join_schema", "join_time", "join_on", "join_within")


@click.command("enrich")
@click.option("--stream", required=True, help="Stream to read.")
@click.option("--schema", required=True, help="Schema of its JSON bodies, as Spark DDL: 'origin STRING, hour INT'.")
@click.option("--time", "event_time", default="", help="SQL expression for the event time; required for joins.")
@click.option("--late", default="10 minutes", show_default=True, help="Maximum lateness of events that are still "
                                                                      "joined.")
@click.option("--join", multiple=True, metavar="STREAM", help="Stream to join; repeat the following options for "
                                                              "each --join:")
@click.option("--join-schema", multiple=True, help="schema of its bodies,")
@click.option("--join-time", multiple=True, help="SQL expression for its event time,")
@click.option("--join-on", multiple=True, metavar="SQL", help="join condition,")
@click.option("--join-within", multiple=True, metavar="INTERVAL", help="maximum time between joined events.")
@click.option("--service", "service_key", help="Request queue of a service that is called for each event.")
@click.option("--service-exchange", default="", help="Exchange for requests; --service is then the routing key.")
@click.option("--request", default="body", show_default=True, help="SQL expression for the request.")
@click.option("--reply-schema", help="Schema of its JSON replies.")
@click.option("--window", default=256, show_default=True, help="Maximum number of outstanding requests per task.")
@click.option("--timeout-s", default=30.0, show_default=True, help="Timeout for a reply.")
@click.option("--select", default="", help="SQL expressions for the fields of the results.  [default: all fields]")
@click.option("--into", required=True, help="Stream or queue for the results, or their routing key.")
@click.option("--exchange", default="", help="Exchange for the results.")
@click.option("--key", default="", help="SQL expression for the routing key of each result.")
@click.option("--dead-letters", default="", help="Queue for failed events; without it, a failure ends the run.")
@click.option("--checkpoint", required=True, metavar="DIR", help="Checkpoint directory from which the next run "
                                                                 "continues.")
@click.option("--rows-max", default=50_000, show_default=True, help="Maximum number of messages per stream and "
                                                                    "micro-batch.")
@click.option("--follow", is_flag=True, help="Keep processing new messages until Ctrl-C.")
@URL
@pipeline
def command(
    running: Running, *, stream: str, schema: str, event_time: str, late: str, service_key: str | None,
    service_exchange: str, request: str, reply_schema: str | None, window: int, timeout_s: float, into: str,
    dead_letters: str, **rest: Any,
) -> None:  # fmt: skip
    """Join a stream with other streams and with replies of a service, into a stream."""
    if (service_key is None) != (reply_schema is None):
        raise click.UsageError("--service and --reply-schema require each other")
    others = [rest.pop(name) for name in JOIN]
    if len({len(each) for each in others}) > 1:
        raise click.UsageError("give --join-schema, --join-time, --join-on and --join-within once for each --join")

    def job(spark: SparkSession, reporter: Reporter, dry_run: bool) -> Summary:
        from leveret.pipelines.enriching.enrich import enrich
        from leveret.pipelines.enriching.events import Events, Join
        from leveret.pipelines.enriching.lookups import Service

        service = None
        if service_key is not None and reply_schema is not None:
            service = Service(service_key, reply_schema, service_exchange, request, window, timeout_s)
        joins = [
            Join(Events(name, its_schema, its_time, late), on, within)
            for name, its_schema, its_time, on, within in zip(*others, strict=True)
        ]
        return enrich(
            spark, Events(stream, schema, event_time, late), into, joins=joins, service=service,
            on_error="column" if dead_letters else "fail", dead_letters=dead_letters, dry_run=dry_run,
            reporter=reporter, **rest,
        )  # fmt: skip

    running.run(job, rest["url"])

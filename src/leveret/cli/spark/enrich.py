"""leveret spark enrich: a stream, with what a service and other streams know, into a stream.
docs/guides/spark/enrich.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leveret.cli.spark.running import URL, Running, pipeline
from leveret.pipelines.summary import Summary

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from leveret.pipelines.reporter import Reporter

JOIN = ("join", "join_schema", "join_time", "join_on", "join_within")


@click.command("enrich")
@click.option("--stream", required=True, help="The stream to read.")
@click.option("--schema", required=True, help="What its JSON bodies hold, in Spark's words: 'origin STRING, hour INT'.")
@click.option("--time", "event_time", default="", help="SQL for the time of an event; needed for joins.")
@click.option("--late", default="10 minutes", show_default=True, help="How late events may come and still be joined.")
@click.option("--join", multiple=True, metavar="STREAM", help="A stream to join; each of these as often as this one:")
@click.option("--join-schema", multiple=True, help="what its bodies hold,")
@click.option("--join-time", multiple=True, help="SQL for the time of its events,")
@click.option("--join-on", multiple=True, metavar="SQL", help="when two events belong together,")
@click.option("--join-within", multiple=True, metavar="INTERVAL", help="how far apart they may be.")
@click.option("--service", "service_key", help="The queue of a service that is asked about each event.")
@click.option("--service-exchange", default="", help="Or the exchange where --service is the routing key.")
@click.option("--request", default="body", show_default=True, help="SQL for the request.")
@click.option("--reply-schema", help="What its JSON replies hold.")
@click.option("--window", default=256, show_default=True, help="Requests of a task that may be unanswered.")
@click.option("--timeout-s", default=30.0, show_default=True, help="How long a request may wait for its reply.")
@click.option("--select", default="", help="SQL expressions for the fields of the results.  [default: all there is]")
@click.option("--into", required=True, help="The stream or queue for the results, or their routing key.")
@click.option("--exchange", default="", help="The exchange for the results.")
@click.option("--key", default="", help="SQL for the routing key of each result.")
@click.option("--dead-letters", default="", help="The queue for what fails, in place of ending with an error.")
@click.option("--checkpoint", required=True, metavar="DIR", help="Where the next run goes on from.")
@click.option("--rows-max", default=50_000, show_default=True, help="Messages of a stream in one micro-batch at most.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until Ctrl-C.")
@URL
@pipeline
def command(
    running: Running,
    *,
    stream: str,
    schema: str,
    event_time: str,
    late: str,
    service_key: str | None,
    service_exchange: str,
    request: str,
    reply_schema: str | None,
    window: int,
    timeout_s: float,
    into: str,
    dead_letters: str,
    **rest: Any,
) -> None:
    """Join the messages of a stream with those of others and with replies of a service, into a stream."""
    if (service_key is None) != (reply_schema is None):
        raise click.UsageError("--service and --reply-schema belong together")
    others = [rest.pop(name) for name in JOIN]
    if len({len(each) for each in others}) > 1:
        raise click.UsageError("--join-schema, --join-time, --join-on and --join-within: as often as --join")

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

    running.run(job)

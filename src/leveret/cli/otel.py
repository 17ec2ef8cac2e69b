"""leveret otel: trace a broker's messages and send the spans to an OpenTelemetry collector.

Reads the firehose of the virtual host in URL, which must be on: leveret ctl trace_on. OpenTelemetry's environment
variables, such as OTEL_EXPORTER_OTLP_ENDPOINT, set the destination. RabbitMQ's firehose works, too.
"""

from __future__ import annotations

import asyncio
import importlib.util
import signal
import sys

import click

NEEDED = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
ENDPOINT = "http://localhost:4318/v1/traces"


@click.command(name="otel", help=__doc__)
@click.argument("url", default="amqp://guest:guest@localhost/%2F")
@click.option("--endpoint", help=f"OTLP/HTTP endpoint that receives the traces.  [default: {ENDPOINT}]")
@click.option("--service-name", default="leveret", show_default=True, help="Name of the broker in traces.")
@click.option("--console", is_flag=True, help="Print the spans as JSON instead of sending them.")
def command(url: str, endpoint: str | None, service_name: str, console: bool) -> None:
    if not all(_is_there(module) for module in NEEDED):
        raise click.UsageError("this command needs OpenTelemetry: pip install 'leveret[otel]'")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter

    from leveret.client import ClientError
    from leveret.otel.recorder import record

    exporter: SpanExporter = ConsoleSpanExporter(out=sys.stdout) if console else OTLPSpanExporter(endpoint=endpoint)
    provider = TracerProvider(resource=Resource.create({"service.name": service_name}))
    provider.add_span_processor(BatchSpanProcessor(exporter))

    async def run() -> None:
        stopping, ready = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopping.set)
        told = asyncio.create_task(_tell(ready))
        try:
            await record(url, provider.get_tracer("leveret.broker"), stopping, ready)
        finally:
            told.cancel()

    try:
        asyncio.run(run())
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except ClientError as error:
        raise click.ClickException(str(error)) from None
    finally:
        provider.shutdown()


async def _tell(ready: asyncio.Event) -> None:
    await ready.wait()
    click.echo("reading the firehose; if nothing arrives, turn it on: leveret ctl trace_on", err=True)


def _is_there(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False

"""OpenTelemetry traces of what clients and brokers do with messages; needs leveret[otel]. See
docs/guides/opentelemetry.md.

Programs call `instrument` (leveret.otel.client); `leveret otel` (leveret.otel.recorder) runs beside a broker.
"""

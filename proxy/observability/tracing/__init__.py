"""Tracing: OpenTelemetry spans of sampled requests, sent by OTLP, and the trace context of messages.

The trace context of a message is its property `traceparent` (W3C Trace Context), else the `trace_context` of a gRPC
client. A send becomes a child of it, and the message then carries the context of the send. Each delivery of the message
is a span of the same trace, for every consumer. Requests without a context are sampled by share.

The OpenTelemetry SDK is an optional extra of the installation (`tracing`), imported only by `tracing`.
"""

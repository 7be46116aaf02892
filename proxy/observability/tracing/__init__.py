"""Traces: OpenTelemetry spans of sampled requests, sent by OTLP, and the context that messages carry.

A message's trace context is its property `traceparent` (W3C Trace Context), else what a gRPC client put in
`trace_context`. A send becomes a child of it, and the message then carries the send's own context; each delivery of
such a message is a span of the same trace, whoever consumes it. Requests without a context are sampled by share.

The OpenTelemetry SDK is an extra of the installation (`tracing`); only `tracing` imports it.
"""

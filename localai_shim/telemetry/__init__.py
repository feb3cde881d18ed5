"""What a program may learn of its requests: lines in a log, timings, OpenTelemetry's spans and metrics."""

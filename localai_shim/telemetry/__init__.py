"""Reports on requests for programs: lines in a log, timings, OpenTelemetry's spans and metrics."""

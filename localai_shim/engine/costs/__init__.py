"""What passes and steps take, as measured: the estimates that decide what runs."""

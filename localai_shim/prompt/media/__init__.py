"""What callers send as images, videos and sounds, made into `Media`."""

"""Images, videos and sounds of callers, made into `Media`."""

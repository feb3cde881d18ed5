"""Exceptions that belong to no request, or say something of the GPU itself."""

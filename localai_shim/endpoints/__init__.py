"""One module per API: request body -> GenerationRequests; events -> SDK objects. Pure, sans-IO, without MLX."""

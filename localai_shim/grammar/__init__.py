"""What a row may emit: grammars from schemas, tools and formats, and how llguidance follows them. Without MLX."""

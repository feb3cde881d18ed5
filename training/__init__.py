"""How the checkpoint that ships with the package was made."""

"""The values and errors of the product. Imports only the standard library, and numpy for vectors."""

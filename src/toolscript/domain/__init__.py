"""The words of the product: plain values and the errors people read. Standard library only, and numpy for vectors."""

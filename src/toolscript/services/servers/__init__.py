"""The upstream servers: their connections, what each has done, and the gateway that starts them and calls tools."""

"""HTTP requests to other services: bounded in bytes and in time, and to allowed addresses only."""

"""The token path: gateway and worker between a mock engine and a stream load, beside a proxy."""

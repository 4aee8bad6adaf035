"""HTTP services as upstreams by their OpenAPI document, and the credentials of every HTTP upstream."""

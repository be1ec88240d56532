"""Read, check and compare operator specs, and generate code from them."""

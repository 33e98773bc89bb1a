"""Networks whose risk is measured: the package's own, limited, or a user's."""

"""The endpoints of the façade, one module per subject, each with a table ``ROUTES``."""

"""The transports that several archivers share; the content is the archivers' own."""

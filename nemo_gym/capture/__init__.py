"""Model calls as they went over the wire: recorded at the model server, read back by the collector."""

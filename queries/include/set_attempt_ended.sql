-- The columns an end sets in an attempt leased until now.
outcome = ${outcome},
terminal_at_ms = ${at_ms},
lease_expires_at_ms = NULL,
ffx_timeout_at_ms = NULL

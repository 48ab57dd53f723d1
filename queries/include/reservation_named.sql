-- The reservation r is the locked one h, by address and key.
r.ctid = h.row_id
AND (r.partition_key = h.partition_key) IS TRUE
AND (r.budget_id = h.budget_id) IS TRUE
AND (r.execution_id = h.execution_id) IS TRUE
AND (r.attempt_index = h.attempt_index) IS TRUE
AND (r.lease_epoch = h.lease_epoch) IS TRUE
AND (r.dimensions_key = h.dimensions_key) IS TRUE

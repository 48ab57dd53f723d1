ALTER TABLE kennel_sync ADD CONSTRAINT kennel_sync_kennel_id_key UNIQUE (kennel_id);

-- The stored fields of frame f.
jsonb_build_object('frame_type', f.frame_type, 'payload', f.payload, 'encoding', f.encoding, 'source', 'worker')
|| CASE WHEN f.correlation_id = '' THEN '{}' ELSE jsonb_build_object('correlation_id', f.correlation_id) END

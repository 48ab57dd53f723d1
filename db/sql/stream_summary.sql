-- name: MergeSummary :one
-- MergeSummary merges patches into the document of an attempt, in array order, and returns the new version and the size
-- of the document in bytes. kept: summary frames of the attempt, the patches included.
--
-- Used by: stream.Append, stream.AppendBatch, stream.AppendEach.
-- Locks: L2 held (the summary row, UPDATE). The caller holds the attempt, without which no statement writes the row.
INSERT INTO ff_stream_summary AS s (
    partition_key, execution_id, attempt_index, document_json, version, patch_kind, last_updated_ms, first_applied_ms,
    ffx_kept
)
VALUES (
    @partition_key, @execution_id, @attempt_index, ffx_merge_patches('{}', sqlc.arg(patches)::text[]::jsonb[]),
    cardinality(sqlc.arg(patches)::text[]), 'json-merge-patch', @ts_ms, @ts_ms, cardinality(sqlc.arg(patches)::text[])
)
ON CONFLICT (partition_key, execution_id, attempt_index) DO UPDATE SET
    document_json = ffx_merge_patches(s.document_json, sqlc.arg(patches)::text[]::jsonb[]),
    version = s.version + excluded.version,
    patch_kind = excluded.patch_kind,
    last_updated_ms = excluded.last_updated_ms,
    ffx_kept = coalesce(s.ffx_kept, 0) + excluded.ffx_kept
RETURNING
    s.version,
    coalesce(s.ffx_kept, 0)::integer AS kept,
    octet_length(s.document_json::text)::integer AS size;

-- name: GetStreamSummary :one
-- GetStreamSummary reads the document the summary frames of an attempt have made. No row: the attempt has none.
--
-- Used by: stream.ReadSummary.
-- Locks: none.
SELECT
    s.document_json,
    s.version,
    coalesce(s.patch_kind, '')::text AS patch_kind,
    s.first_applied_ms,
    s.last_updated_ms
FROM ff_stream_summary AS s
WHERE
    s.partition_key = @partition_key
    AND s.execution_id = @execution_id
    AND s.attempt_index = @attempt_index;

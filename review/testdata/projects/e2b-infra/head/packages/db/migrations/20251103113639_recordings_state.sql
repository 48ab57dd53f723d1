-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS recordings_studio_state_idx
    ON public.recordings (studio_id, state);

CREATE INDEX CONCURRENTLY IF NOT EXISTS recordings_studio_updated_idx
    ON public.recordings (studio_id, updated_at DESC, id) WHERE taken_down_at IS NULL;

DROP INDEX CONCURRENTLY IF EXISTS recordings_studio_idx;

-- +goose Down
CREATE INDEX CONCURRENTLY IF NOT EXISTS recordings_studio_idx ON public.recordings (studio_id);
DROP INDEX CONCURRENTLY IF EXISTS recordings_studio_updated_idx;
DROP INDEX CONCURRENTLY IF EXISTS recordings_studio_state_idx;

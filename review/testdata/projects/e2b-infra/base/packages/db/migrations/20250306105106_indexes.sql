-- +goose NO TRANSACTION
-- +goose Up
CREATE INDEX CONCURRENTLY IF NOT EXISTS recordings_studio_idx ON public.recordings (studio_id);

CREATE INDEX CONCURRENTLY IF NOT EXISTS studios_users_user_idx ON public.studios_users (user_id);

-- +goose Down
DROP INDEX CONCURRENTLY IF EXISTS studios_users_user_idx;
DROP INDEX CONCURRENTLY IF EXISTS recordings_studio_idx;

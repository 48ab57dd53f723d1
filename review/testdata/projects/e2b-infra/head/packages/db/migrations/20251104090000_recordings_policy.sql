-- +goose Up
-- +goose StatementBegin
ALTER TABLE public.recordings ENABLE ROW LEVEL SECURITY;
ALTER TABLE public.recordings FORCE ROW LEVEL SECURITY;

CREATE POLICY "Visitors see recordings of their studios" ON public.recordings FOR SELECT TO studio_visitor
    USING (studio_id IN (SELECT studio_id FROM public.studios_users WHERE user_id = identity.current_id()));
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP POLICY "Visitors see recordings of their studios" ON public.recordings;
ALTER TABLE public.recordings NO FORCE ROW LEVEL SECURITY;
ALTER TABLE public.recordings DISABLE ROW LEVEL SECURITY;
-- +goose StatementEnd

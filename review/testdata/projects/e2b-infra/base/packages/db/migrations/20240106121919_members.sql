-- +goose Up
CREATE TABLE public.studios_users (
    studio_id uuid NOT NULL REFERENCES public.studios (id) ON DELETE CASCADE,
    user_id uuid NOT NULL REFERENCES identity.users (id) ON DELETE CASCADE,
    created_at timestamp DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (studio_id, user_id)
);

CREATE TABLE public.licences (
    key text PRIMARY KEY,
    holder text NOT NULL,
    CONSTRAINT licences_key_check CHECK (key = encode(sha256(convert_to(holder, 'UTF8')), 'hex'))
);

CREATE POLICY "Visitors see their studios" ON public.studios FOR SELECT TO studio_visitor
    USING (id IN (SELECT studio_id FROM public.studios_users WHERE user_id = identity.current_id()));

-- +goose Down
DROP POLICY "Visitors see their studios" ON public.studios;
DROP TABLE public.licences;
DROP TABLE public.studios_users;

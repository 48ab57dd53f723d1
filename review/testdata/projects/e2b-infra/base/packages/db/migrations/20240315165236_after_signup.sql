-- +goose Up
-- +goose StatementBegin
CREATE FUNCTION public.after_signup() RETURNS TRIGGER AS $create_studio$
DECLARE
    made uuid;
BEGIN
    INSERT INTO public.studios (name) VALUES (NEW.email) RETURNING id INTO made;
    INSERT INTO public.studios_users (studio_id, user_id) VALUES (made, NEW.id);
    RETURN NEW;
END
$create_studio$ LANGUAGE plpgsql SECURITY DEFINER SET search_path = public;

CREATE TRIGGER after_signup AFTER INSERT ON identity.users FOR EACH ROW EXECUTE FUNCTION public.after_signup();
-- +goose StatementEnd

-- +goose Down
DROP TRIGGER after_signup ON identity.users;
DROP FUNCTION public.after_signup();

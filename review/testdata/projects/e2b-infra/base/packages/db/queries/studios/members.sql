-- name: AddMember :exec
INSERT INTO public.studios_users (studio_id, user_id) VALUES (@studio_id, @user_id);

-- name: StudiosOfUser :many
SELECT s.*
FROM public.studios s
JOIN public.studios_users m ON m.studio_id = s.id
WHERE m.user_id = @user_id;

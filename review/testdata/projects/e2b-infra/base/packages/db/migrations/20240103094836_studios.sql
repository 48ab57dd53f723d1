-- +goose Up
-- +goose StatementBegin
CREATE TABLE "public"."plans" (
    "id" text NOT NULL,
    "name" text NOT NULL,
    "seats" bigint NOT NULL DEFAULT '1'::bigint,
    PRIMARY KEY ("id"),
    CONSTRAINT "plans_seats_check" CHECK (seats > 0)
);
INSERT INTO public.plans (id, name, seats) VALUES ('base', 'Base', 5);

CREATE TABLE "public"."studios" (
    "id" uuid NOT NULL DEFAULT gen_random_uuid(),
    "created_at" timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "name" text NOT NULL,
    "plan" text NOT NULL DEFAULT 'base',
    PRIMARY KEY ("id"),
    CONSTRAINT "studios_plans" FOREIGN KEY ("plan") REFERENCES "public"."plans" ("id") ON UPDATE NO ACTION ON DELETE NO ACTION
);

CREATE TABLE "public"."recordings" (
    "id" text NOT NULL,
    "studio_id" uuid NOT NULL,
    "title" text,
    "labels" jsonb NOT NULL DEFAULT '{}'::jsonb,
    "state" text NOT NULL DEFAULT 'waiting',
    "updated_at" timestamptz NOT NULL,
    "taken_down_at" timestamptz,
    PRIMARY KEY ("id"),
    CONSTRAINT "recordings_studios" FOREIGN KEY ("studio_id") REFERENCES "public"."studios" ("id") ON DELETE CASCADE
);

ALTER TABLE "public"."studios" ENABLE ROW LEVEL SECURITY;
-- +goose StatementEnd

-- +goose Down
-- +goose StatementBegin
DROP TABLE recordings, studios, plans;
-- +goose StatementEnd

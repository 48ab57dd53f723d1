CREATE TYPE "ParcelState" AS ENUM ('WAITING', 'MOVING', 'ARRIVED', 'LOST');

CREATE TABLE "Depot" (
    "id" UUID NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "deletedAt" TIMESTAMP(3),
    "slug" TEXT NOT NULL,

    CONSTRAINT "Depot_pkey" PRIMARY KEY ("id")
);

CREATE TABLE "Belt" (
    "id" UUID NOT NULL,
    "depotId" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "lastHeartbeatAt" TIMESTAMP(3),

    CONSTRAINT "Belt_pkey" PRIMARY KEY ("id")
);

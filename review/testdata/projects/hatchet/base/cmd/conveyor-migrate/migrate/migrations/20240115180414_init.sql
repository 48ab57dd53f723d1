-- +goose Up
-- CreateEnum
CREATE TYPE "ParcelState" AS ENUM ('WAITING', 'MOVING', 'ARRIVED', 'LOST');

-- CreateTable
CREATE TABLE "Depot" (
    "id" UUID NOT NULL,
    "createdAt" TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP,
    "deletedAt" TIMESTAMP(3),
    "slug" TEXT NOT NULL,

    CONSTRAINT "Depot_pkey" PRIMARY KEY ("id")
);

-- CreateTable
CREATE TABLE "Belt" (
    "id" UUID NOT NULL,
    "depotId" UUID NOT NULL,
    "name" TEXT NOT NULL,
    "lastHeartbeatAt" TIMESTAMP(3),

    CONSTRAINT "Belt_pkey" PRIMARY KEY ("id")
);

-- CreateIndex
CREATE UNIQUE INDEX "Depot_slug_key" ON "Depot"("slug");

-- CreateIndex
CREATE UNIQUE INDEX "Belt_depotId_name_key" ON "Belt"("depotId" ASC, "name" ASC);

-- AddForeignKey
ALTER TABLE "Belt" ADD CONSTRAINT "Belt_depotId_fkey" FOREIGN KEY ("depotId") REFERENCES "Depot"("id") ON DELETE CASCADE ON UPDATE CASCADE;

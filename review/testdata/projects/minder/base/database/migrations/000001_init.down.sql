DROP TABLE vehicles;
DROP TABLE mechanics;
DROP TABLE garages;
DROP TYPE verdict;
DROP TYPE vehicle_kind;

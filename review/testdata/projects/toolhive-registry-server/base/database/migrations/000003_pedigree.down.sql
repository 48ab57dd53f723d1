DROP TABLE pedigree;

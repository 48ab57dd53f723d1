DROP TABLE litter;

DROP TRIGGER keep_latest_verdict ON inspections;
DROP FUNCTION keep_latest_verdict();
DROP TABLE latest_verdicts;

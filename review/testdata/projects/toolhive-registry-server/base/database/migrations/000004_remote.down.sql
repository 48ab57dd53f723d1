-- An enum keeps its values.
SELECT 1;

CREATE OR REPLACE VIEW attention_raised AS SELECT * FROM attention;

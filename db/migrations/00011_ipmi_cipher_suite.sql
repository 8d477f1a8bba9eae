-- +goose Up
-- Which cipher suite a BMC is spoken to with over IPMI. 3 is for a device that has nothing better; there is no automatic choice.
ALTER TABLE bmcs ADD COLUMN ipmi_cipher_suite integer NOT NULL DEFAULT 17 CHECK (ipmi_cipher_suite IN (3, 17));

-- +goose Down
ALTER TABLE bmcs DROP COLUMN ipmi_cipher_suite;
